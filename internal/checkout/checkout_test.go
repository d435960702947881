package checkout

import (
	"os"
	"testing"
)

func TestPath(t *testing.T) {
	for _, name := range []string{"go.mod", "internal/checkout/checkout.go"} {
		if _, err := os.Stat(Path(name)); err != nil {
			t.Error(err)
		}
	}
	before := Path("go.mod")
	t.Chdir(t.TempDir())
	if after := Path("go.mod"); after != before {
		t.Errorf("in another folder %s, before %s", after, before)
	}
}
