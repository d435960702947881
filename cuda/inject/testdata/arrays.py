"""Vector addition, matrix product and reduction by CuPy or Numba."""
import sys, numpy as np
n = 1 << 20
x, y = np.random.rand(n).astype("f"), np.random.rand(n).astype("f")
if sys.argv[1] == "cupy":
    import cupy
    a, b = cupy.asarray(x), cupy.asarray(y)
    for _ in range(20):
        c = a + b
        m = a[:1 << 18].reshape(512, 512) @ b[:1 << 18].reshape(512, 512)
        total = float(c.sum()) + float(m[0, 0])
else:
    np.row_stack = np.vstack  # which some versions of Numba look for
    from numba import cuda
    @cuda.jit
    def add(a, b, c):
        i = cuda.grid(1)
        if i < c.size:
            c[i] = a[i] + b[i]
    @cuda.jit
    def product(a, b, c):
        i, j = cuda.grid(2)
        s = 0.0
        for k in range(512):
            s += a[i, k] * b[k, j]
        c[i, j] = s
    largest = cuda.reduce(lambda a, b: a + b)
    a, b = cuda.to_device(x), cuda.to_device(y)
    c, m = cuda.device_array_like(a), cuda.device_array((512, 512), "f")
    p, q = a[:1 << 18].reshape(512, 512), b[:1 << 18].reshape(512, 512)
    for _ in range(20):
        add[n // 256, 256](a, b, c)
        product[(32, 32), (16, 16)](p, q, m)
        total = largest(c)
    c.copy_to_host()
print(total)
