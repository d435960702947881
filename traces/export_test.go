package traces

// For the tests of the package's face.
const NumKinds = numKinds

var (
	Micros       = micros
	AppendMicros = appendMicros
)

// KindNames returns the name and the category of a kind.
func KindNames(k Kind) (name, category string) { return kinds[k].name, kinds[k].category }
