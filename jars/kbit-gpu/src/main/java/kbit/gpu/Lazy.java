package kbit.gpu;

import java.util.function.Supplier;

/** A value that is made when it is asked for first. Used by one thread at a time. */
final class Lazy<T> implements Supplier<T> {
  private final Supplier<T> make;
  private T value;

  Lazy(Supplier<T> make) {
    this.make = make;
  }

  @Override
  public T get() {
    if (value == null) value = make.get();
    return value;
  }
}
