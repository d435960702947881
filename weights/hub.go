package weights

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gpt2scope/internal/files"
)

// HubCache returns the folder in which the Hugging Face tools keep what they download: HF_HUB_CACHE, else hub in
// HF_HOME, else ~/.cache/huggingface/hub (huggingface_hub, src/huggingface_hub/constants.py).
func HubCache() string {
	if dir := cmp.Or(os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE")); dir != "" {
		return dir
	}
	home := os.Getenv("HF_HOME")
	if home == "" {
		cache := os.Getenv("XDG_CACHE_HOME")
		if cache == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return ""
			}
			cache = filepath.Join(user, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	return filepath.Join(home, "hub")
}

// hubName is a name on the hub: "openai-community/gpt2", or an old one without a user, "gpt2".
var hubName = regexp.MustCompile(`^\w[\w.-]*(/\w[\w.-]*)?$`)

// IsHubName tells whether a model on the Hugging Face hub may have this name.
func IsHubName(name string) bool {
	return len(name) <= 96 && hubName.MatchString(name) && !strings.Contains(name, "--") && !strings.Contains(name, "..")
}

// moved are names without a user that lead to a repository with one.
var moved = map[string]string{
	"gpt2": "openai-community/gpt2", "gpt2-medium": "openai-community/gpt2-medium", "gpt2-large": "openai-community/gpt2-large",
	"gpt2-xl": "openai-community/gpt2-xl", "distilgpt2": "distilbert/distilgpt2",
}

// FromHub returns the directory of a model that the Hugging Face tools downloaded: the
// snapshot of its main branch in [HubCache]. The error says how to download it.
func FromHub(name string) (dir string, err error) {
	cache := HubCache()
	full := cmp.Or(moved[name], name)
	get := fmt.Sprintf("'hf download %s' ('huggingface-cli download %s' in older versions)", full, full)
	for _, repo := range slices.Compact([]string{name, full}) {
		dir := filepath.Join(cache, "models--"+strings.ReplaceAll(repo, "/", "--"))
		revision, err := files.Read(filepath.Join(dir, "refs", "main"), 4096)
		if err != nil {
			continue
		}
		hash := strings.TrimSpace(string(revision))
		if hash == "" || hash == "." || hash == ".." || filepath.Base(hash) != hash {
			return "", problem(filepath.Join(dir, "refs", "main"), "%s names no snapshot: remove the file, then get the model "+
				"with %s", quote(hash), get)
		}
		snapshot := filepath.Join(dir, "snapshots", hash)
		if info, err := os.Stat(snapshot); err != nil || !info.IsDir() {
			return "", problem(snapshot, "the snapshot is not there: get the model with %s", get)
		}
		return snapshot, nil
	}
	return "", problem("", "the Hugging Face cache (%s) has no model %s; %s gets it from the hub", cache, name, get)
}
