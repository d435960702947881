// Lesson 4: multiplications and additions that stay in registers. Each returns what keeps compilers from removing them.
float learn_chain(long steps);    // one after another: 2 FLOPs a step
float learn_chains(long steps);   // 8 chains at a time: 16 FLOPs a step
float learn_vectors(long steps);  // 4 chains of 16 numbers: 128 FLOPs a step

// Lesson 6: squares of n numbers, three ways, and a change of sign, which moves as many bytes.
void learn_multiply(float *y, const float *x, long n);
void learn_square(float *y, const float *x, long n);
void learn_power(float *y, const float *x, long n);
void learn_negate(float *y, const float *x, long n);

// Lesson 14: unified memory of a GPU by the driver; NULL with *why if there is none. learn_prefetch moves it to the GPU.
void *learn_managed(int device, long bytes, const char **why);
int learn_prefetch(void *p, long bytes, int device);
void learn_unmanage(void *p, int device);
