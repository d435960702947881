// Multiplications and additions, by 0.999 and 0.001, that stay in registers. Each returns what keeps compilers from removing them.
float learn_chain(long steps);    // one after another: 2 FLOPs a step
float learn_chains(long steps);   // 8 chains at a time: 16 FLOPs a step
float learn_vectors(long steps);  // 4 chains of 16 numbers: 128 FLOPs a step
