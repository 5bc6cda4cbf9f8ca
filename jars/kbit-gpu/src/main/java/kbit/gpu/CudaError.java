package kbit.gpu;

/** CUDA, or the road to it, failed; the message names the call, its sizes and, where there is one, the way out. */
public final class CudaError extends RuntimeException {
  CudaError(String message) {
    super(message);
  }
}
