package kbit.gpu;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class NativeApiTest {
  @Test
  void namesTheWayOutWhereTheCompilerIsNotThere() {
    String before = System.setProperty(NativeApi.FOLDER, "/nowhere");
    try {
      String message = assertThrows(CudaError.class, NativeApi::nvrtc).getMessage();
      assertTrue(message.contains("/nowhere"), message);
      assertTrue(message.contains("-Dkbit.gpu.libraries="), message);
    } finally {
      if (before == null) System.clearProperty(NativeApi.FOLDER);
      else System.setProperty(NativeApi.FOLDER, before);
    }
  }
}
