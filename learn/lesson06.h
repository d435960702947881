// Squares of n numbers, three ways, and a change of sign, which moves as many bytes.
void learn_multiply(float *y, const float *x, long n);
void learn_square(float *y, const float *x, long n);
void learn_power(float *y, const float *x, long n);
void learn_negate(float *y, const float *x, long n);
