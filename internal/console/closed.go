package console

// #include "closed.h"
import "C"

// OutputClosed tells whether standard output was closed when the process began. Writing to it is an error then.
func OutputClosed() bool { return C.gs_output_closed != 0 }
