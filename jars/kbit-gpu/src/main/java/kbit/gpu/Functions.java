package kbit.gpu;

import org.apache.spark.sql.expressions.SparkUserDefinedFunction;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.types.DataType;
import scala.Option;
import scala.collection.immutable.Nil$;

/** Functions of Spark that stay what they are: {@code functions.udf} would wrap them, and RAPIDS not find them. */
final class Functions {
  private Functions() {}

  /** {@code function}: a scala.FunctionN of boxed values and Rows. */
  @SuppressWarnings({"unchecked", "rawtypes"})
  static UserDefinedFunction nondeterministic(Object function, DataType result) {
    return new SparkUserDefinedFunction(
        function, result, (scala.collection.immutable.Seq) Nil$.MODULE$, Option.empty(), Option.empty(), true, false);
  }
}
