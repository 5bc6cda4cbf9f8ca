package kbit.gpu;

import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.DType;
import ai.rapids.cudf.Scalar;
import com.nvidia.spark.RapidsUDF;
import java.nio.ByteBuffer;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/**
 * The Schema Registry's id in a payload's header: {@code binary -> int}, null without the header of five bytes or for
 * an id above 2^31 - 1. RAPIDS has no function for parts of binary.
 */
public final class SchemaIdUdf implements UDF1<byte[], Integer>, RapidsUDF {
  private static final int HEADER_BYTES = 5;

  public static UserDefinedFunction of() {
    return functions.udf(new SchemaIdUdf(), DataTypes.IntegerType);
  }

  @Override
  public Integer call(byte[] payload) {
    if (payload == null || payload.length < HEADER_BYTES || payload[0] != 0) return null;
    int id = ByteBuffer.wrap(payload, 1, HEADER_BYTES - 1).getInt();
    return id < 0 ? null : id;
  }

  @Override
  public ColumnVector evaluateColumnar(int rows, ColumnVector... arguments) {
    ColumnVector payload = arguments[0];
    try (ColumnVector id = id(payload);
        ColumnVector framed = isFramed(payload);
        ColumnVector fits = fits(id);
        ColumnVector known = framed.and(fits);
        ColumnVector narrow = id.castTo(DType.INT32);
        Scalar nothing = Scalar.fromNull(DType.INT32)) {
      return known.ifElse(narrow, nothing); // null counts as false
    }
  }

  /** Bytes 1 to 4, big-endian, as a long; null where there are not as many. */
  private static ColumnVector id(ColumnVector payload) {
    ColumnVector id = byteAt(payload, 1);
    for (int i = 2; i < HEADER_BYTES; i++) {
      try (ColumnVector high = id; ColumnVector next = byteAt(payload, i); Scalar base = Scalar.fromLong(256); ColumnVector shifted = high.mul(base)) {
        id = shifted.add(next);
      }
    }
    return id;
  }

  private static ColumnVector byteAt(ColumnVector payload, int index) {
    try (ColumnVector bytes = payload.extractListElement(index)) {
      return bytes.castTo(DType.INT64);
    }
  }

  private static ColumnVector isFramed(ColumnVector payload) {
    try (ColumnVector first = byteAt(payload, 0); Scalar magic = Scalar.fromLong(0)) {
      return first.equalTo(magic);
    }
  }

  private static ColumnVector fits(ColumnVector id) {
    try (Scalar most = Scalar.fromLong(Integer.MAX_VALUE)) {
      return id.lessOrEqualTo(most);
    }
  }
}
