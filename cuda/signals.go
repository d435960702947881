package cuda

// #include "shim.h"
import "C"

import "time"

// keepSignals keeps the program's handlers of signals during a call that replaces them, until stop.
//
// NVRTC takes SIGINT and SIGTERM while its front end works, for some 10 ms and more: its handler ends the process with
// status 4. It gives them back by signal(), which drops SA_ONSTACK, so that the next Ctrl-C ends the program with
// "non-Go code set up signal handler without SA_ONSTACK flag". The handlers are put back each millisecond during the
// call, and once after it.
func keepSignals() (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				C.gs_signals_restore()
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
		C.gs_signals_restore()
	}
}
