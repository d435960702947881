package cuda

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A machine has no GPU if neither a driver nor the PCI bus tells of one.
func TestNoGPU(t *testing.T) {
	for path, text := range map[string]string{"dev/nvidiactl": "", "dev/dxg": "", "sys/bus/pci/devices/0000:19:00.0/vendor": "0x10de\n"} {
		root := t.TempDir()
		for name, text := range map[string]string{path: text, "sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086\n"} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o777), os.WriteFile(filepath.Join(root, name), []byte(text), 0o666)); err != nil {
				t.Fatal(err)
			}
		}
		if noGPU(root) {
			t.Errorf("%s tells of no GPU", path)
		}
		if os.RemoveAll(filepath.Join(root, path)); !noGPU(root) {
			t.Errorf("without %s there is a GPU", path)
		}
	}
}
