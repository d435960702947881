// A kernel of a length that is given: each block waits until so many clock cycles have passed.
// steps bounds the loop, whatever the clock does.
extern "C" __global__ void spin(long long cycles, int steps) {
  const long long start = clock64();
  for (int i = 0; i < steps && clock64() - start < cycles; i++) {
  }
}
