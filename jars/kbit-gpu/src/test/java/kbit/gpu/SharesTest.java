package kbit.gpu;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class SharesTest {
  @Test
  void eachItemBeginsWithAWarpOfItsOwn() {
    Shares shares = new Shares(4, 3);
    shares.add(33, 1, 2);
    shares.add(0, 3, 4);
    shares.add(32, 5, 6);
    shares.add(1, 7, 8);
    assertArrayEquals(new long[] {0, 1, 2, 64, 3, 4, 64, 5, 6, 96, 7, 8}, shares.table());
    assertEquals(4, shares.items());
    assertEquals(128, shares.threads());
  }

  @Test
  void noItemsHaveNoThreads() {
    assertEquals(0, new Shares(0, 3).threads());
  }

  @Test
  void shortElementsAreCopiedByFewThreads() {
    assertEquals(4, Launcher.threadsPerElement(0, 0));
    assertEquals(4, Launcher.threadsPerElement(1000, 10));
    assertEquals(4, Launcher.threadsPerElement(1000, 7_900));
    assertEquals(16, Launcher.threadsPerElement(1000, 31_999));
    assertEquals(32, Launcher.threadsPerElement(1000, 784_000));
    assertEquals(32, Launcher.threadsPerElement(1, 1L << 40));
  }
}
