// Whether kernels of a GPU can follow the host's own pointers (CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS): 1 or 0, -1 if the driver
// does not say.
int learn_pageable_access(int device);
