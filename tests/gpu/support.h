// The kernels of kbit-gpu's support.cu that run on the CPU as well, and what the JVM makes for them.
#pragma once
extern long long simulated_thread;
#include "support.cu"

// As kbit.gpu.Shares: gives an item so many threads, in whole warps, and returns where the next one's begin.
template <class Item> i64 share(Item& item, i64 first, i64 threads) {
  item.first = first;
  return first + (threads + 31) / 32 * 32;
}

// Runs a kernel with at least so many threads, in whole blocks.
template <class Kernel> void launch(i64 threads, Kernel kernel) {
  for (i64 i = 0; i < (threads + 127) / 128 * 128; i++) {
    simulated_thread = i;
    kernel();
  }
}
