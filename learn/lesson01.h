// z = x + y of n numbers, one after another and in vectors. n is a multiple of 16.
void learn_add(float *z, const float *x, const float *y, long n);
void learn_add_vectors(float *z, const float *x, const float *y, long n);
