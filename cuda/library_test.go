package cuda

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"gpt2scope/internal/require"
)

// A machine has no GPU if neither a driver nor the PCI bus tells of one.
func TestNoGPU(t *testing.T) {
	const pci = "sys/bus/pci/devices/0000:"
	for path, text := range map[string]string{"dev/nvidiactl": "", "dev/dxg": "", pci + "19:00.0/vendor": "0x10de\n"} {
		root := t.TempDir()
		for name, text := range map[string]string{path: text, pci + "00:00.0/vendor": "0x8086\n"} {
			file := filepath.Join(root, name)
			require.NoError(t, cmp.Or(os.MkdirAll(filepath.Dir(file), 0o777), os.WriteFile(file, []byte(text), 0o666)))
		}
		if noGPU(root) {
			t.Errorf("%s tells of no GPU", path)
		}
		if os.RemoveAll(filepath.Join(root, path)); !noGPU(root) {
			t.Errorf("without %s there is a GPU", path)
		}
	}
}
