package kbit.gpu;

/** Turns CUDA C++ into machine code. */
interface Compiler {
  /** Names what, beside source and architecture, the result depends on. */
  String version();

  /**
   * Returns a CUBIN.
   *
   * @param arch the device's architecture, such as {@code sm_90}
   * @throws CudaError the source is faulty; the message holds the compiler's log
   */
  byte[] compile(String source, String arch);
}
