//go:build !amd64

package predict

const vectors = false

func sumVectors(*block, int, *origin) float64 { panic("there are no vectors") }
