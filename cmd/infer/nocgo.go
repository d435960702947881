//go:build !cgo

package main

// A build without cgo ends here, with a sentence instead of the names that it would lack everywhere else.
const _ int = "infer is Go and C: build it with CGO_ENABLED=1 and a C compiler, such as gcc or clang"

func main() {}
