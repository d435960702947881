package layers

import (
	"bytes"
	"strings"
	"testing"
)

func TestCSV(t *testing.T) {
	task := Task{What: TaskDecode, Variant: Variant{Label: "1", Kind: KindDepth, Layers: 3, Order: []int{0, 2, 1}}, Repeat: 1}
	var b bytes.Buffer
	must(t, WriteCSV(&b, rowsOf(task, []Value{{Phase: TaskDecode, Metric: "decode time", Unit: "ms", Value: 1.5}})))
	lines := strings.Split(b.String(), "\n")
	if lines[0] != "variant,kind,layers,order,phase,metric,unit,repeat,value,time" || !strings.HasPrefix(lines[1], "1,depth,3,0 2 1,decode,decode time,ms,1,1.5,2") || !strings.HasSuffix(lines[1], "Z") || len(lines) != 3 {
		t.Errorf("%q", lines)
	}
}
