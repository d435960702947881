package weights

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHubCache: the variables count in the order in which the Hugging Face tools read them.
func TestHubCache(t *testing.T) {
	variables := []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}
	for i, want := range []string{"/c0", "/c1", "/c2/hub", "/c3/huggingface/hub", "/c4/.cache/huggingface/hub"} {
		for j, name := range variables {
			value := ""
			if j >= i {
				value = "/c" + string(rune('0'+j))
			}
			t.Setenv(name, value)
		}
		if got := HubCache(); got != want {
			t.Errorf("from %s on: %s, want %s", variables[i], got, want)
		}
	}
}

// TestExpandHome: without HOME the system's record of the user counts.
func TestExpandHome(t *testing.T) {
	t.Setenv("HOME", "/c4")
	for path, want := range map[string]string{"~/x": "/c4/x", "~": "/c4", "~x": "~x", "/~/x": "/~/x", "": ""} {
		if got := ExpandHome(path); got != want {
			t.Errorf("%q becomes %q, expected %q", path, got, want)
		}
	}
	os.Unsetenv("HOME")
	if got := ExpandHome("~/x"); !filepath.IsAbs(got) {
		t.Errorf("without HOME ~/x becomes %q", got)
	}
}

func TestIsHubName(t *testing.T) {
	for name, want := range map[string]bool{
		"openai-community/gpt2": true, "gpt2": true, "gpt2-medium": true, "a.b/c_d": true,
		"": false, "/tmp/x": false, "./x": false, "a/b/c": false, "a/..": false, "..": false, "a--b/c": false, "a b": false, "a/": false, "~/x": false,
		"me/model@v1.0": true, "me/model@refs/pr/1": true, "gpt2@607a30d": true, "a/b@": false, "a/b@../c": false, "@x": false,
	} {
		if IsHubName(name) != want {
			t.Errorf("IsHubName(%q) is %v", name, !want)
		}
	}
}

func TestFromHub(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	put := func(path, text string) {
		t.Helper()
		path = filepath.Join(cache, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o777))
		put(t, path, text)
	}
	put("models--openai-community--gpt2/refs/main", "607a30d\n")
	put("models--openai-community--gpt2/snapshots/607a30d/config.json", "{}")
	put("models--openai-community--gpt2/refs/old", "11aa")
	put("models--openai-community--gpt2/snapshots/11aa/config.json", "{}")
	put("models--a--one/snapshots/1234/config.json", "{}")
	put("models--a--two/snapshots/1234/config.json", "{}")
	put("models--a--two/snapshots/1278/config.json", "{}")
	put("models--a--gone/refs/main", "1234")
	put("models--a--gone/snapshots/.keep", "")
	put("models--a--hostile/refs/main", "../../elsewhere")
	put("models--a--hostile/snapshots/.keep", "")
	for _, c := range []struct{ name, want, problem string }{
		{"openai-community/gpt2", "models--openai-community--gpt2/snapshots/607a30d", ""},
		{"gpt2", "models--openai-community--gpt2/snapshots/607a30d", ""},
		{"gpt2-xl", "", "hf download openai-community/gpt2-xl"},
		{"me/mine", "", "'hf download me/mine'"},
		{"me/mine@v2", "", "hf download me/mine --revision v2"},
		{"gpt2@old", "models--openai-community--gpt2/snapshots/11aa", ""},
		{"gpt2@607", "models--openai-community--gpt2/snapshots/607a30d", ""},
		{"gpt2@new", "", "hf download openai-community/gpt2 --revision new"},
		{"a/one", "models--a--one/snapshots/1234", ""},
		{"a/two", "", "MODEL@COMMIT"},
		{"a/two@127", "models--a--two/snapshots/1278", ""},
		{"a/gone", "", `"1234" names no snapshot`},
		{"a/hostile", "", "names no snapshot"},
	} {
		got, err := FromHub(c.name)
		if c.want != "" {
			if err != nil || got != filepath.Join(cache, c.want) {
				t.Errorf("%s: %q, %v", c.name, got, err)
			}
		} else if err == nil || got != "" || !strings.Contains(err.Error(), c.problem) ||
			!strings.Contains(err.Error(), cache) {
			t.Errorf("%s: %q, error %v, which should name the cache and %q", c.name, got, err, c.problem)
		}
	}
}
