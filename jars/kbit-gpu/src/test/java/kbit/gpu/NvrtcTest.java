package kbit.gpu;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class NvrtcTest {
  private static final byte[] ELF = {0x7f, 'E', 'L', 'F'};

  @ParameterizedTest
  @ValueSource(strings = {"support.cu", "tiny.cu"})
  void compilesForADeviceThatIsNotThere(String resource) {
    byte[] cubin = new Nvrtc().compile(Kernels.read(resource), "sm_90");
    assertArrayEquals(ELF, Arrays.copyOf(cubin, ELF.length));
  }

  @Test
  void showsTheLogOfASourceThatIsFaulty() {
    String source = "extern \"C\" __global__ void f() { nonsense; }";
    CudaError error = assertThrows(CudaError.class, () -> new Nvrtc().compile(source, "sm_90"));
    assertTrue(error.getMessage().contains("NVRTC_ERROR_COMPILATION"), error.getMessage());
    assertTrue(error.getMessage().contains("\"nonsense\" is undefined"), error.getMessage());
  }

  @Test
  void namesItsVersion() {
    assertTrue(new Nvrtc().version().matches("nvrtc \\d+\\.\\d+"));
  }
}
