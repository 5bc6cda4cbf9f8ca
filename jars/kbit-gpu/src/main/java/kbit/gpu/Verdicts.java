package kbit.gpu;

import java.util.ArrayList;
import java.util.List;
import kbit.decode.DecodeException;

/** What the CPU's decoder says about the rows that the kernels did not call ok; rows ascend. */
final class Verdicts {
  record Fault(int row, DecodeException error) {}

  record Decoded(int row, Object[] values) {}

  final List<Fault> faults = new ArrayList<>();
  final List<Decoded> decoded = new ArrayList<>();
}
