package journal

import "testing"

func TestParseShard(t *testing.T) {
	if s, err := ParseShard("2/8"); err != nil || s != (Shard{2, 8}) {
		t.Error(s, err)
	}
	for _, bad := range []string{"", "2", "0/8", "9/8", "2/8x", "2/8 3", "-1/2", "a/b", "1/0"} {
		if s, err := ParseShard(bad); err == nil {
			t.Errorf("%q is %v", bad, s)
		}
	}
}
