package kbit.gpu;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import org.junit.jupiter.api.Test;

class NativeApiTest {
  private static native int nvrtcVersion(long major, long minor);

  @Test
  void bindsMethodsToFunctionsOfTheirNames() {
    NativeApi.nvrtc().bind(NativeApiTest.class);
    try (Memory version = new Memory(2 * Integer.BYTES)) {
      long address = Pointer.nativeValue(version);
      assertEquals(0, nvrtcVersion(address, address + Integer.BYTES));
      assertEquals("nvrtc " + version.getInt(0) + "." + version.getInt(Integer.BYTES), new Nvrtc().version());
    }
  }

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
