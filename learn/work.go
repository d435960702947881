package learn

import _ "embed"

//go:embed work.cu
var workText string

// workSource has a kernel that does so many rounds of arithmetic on each number.
var workSource = Source{"work.cu", workText}
