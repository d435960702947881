package weights

import (
	"cmp"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"gpt2scope/internal/files"
	"gpt2scope/internal/lazyregexp"
)

// HubCache returns the folder in which the Hugging Face tools keep what they download: HF_HUB_CACHE, else hub in
// HF_HOME, else ~/.cache/huggingface/hub (huggingface_hub, src/huggingface_hub/constants.py).
func HubCache() string {
	if dir := cmp.Or(os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE")); dir != "" {
		return ExpandHome(dir)
	}
	home := cmp.Or(os.Getenv("HF_HOME"), filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), "~/.cache"), "huggingface"))
	return ExpandHome(filepath.Join(home, "hub"))
}

// ExpandHome puts the user's home in place of a ~ at the beginning of a path, where a shell has not: $HOME, or what the
// system knows if that is not set.
func ExpandHome(path string) string {
	rest, ok := strings.CutPrefix(path, "~")
	if !ok || rest != "" && rest[0] != '/' {
		return path
	}
	home, err := os.UserHomeDir()
	if err != nil {
		if u, err := user.Current(); err == nil {
			home = u.HomeDir
		}
	}
	return home + rest
}

// hubName is a name on the hub: "openai-community/gpt2", or an old one without a user, "gpt2". A revision may follow: a
// branch, a tag, or a commit or its beginning.
var hubName = lazyregexp.New(`^\w[\w.-]*(/\w[\w.-]*)?(@\w[\w./-]*)?$`)

// IsHubName tells whether a model on the Hugging Face hub may have this name.
func IsHubName(name string) bool {
	return len(name) <= 200 && hubName().MatchString(name) && !strings.Contains(name, "--") && !strings.Contains(name, "..")
}

// moved are names without a user that lead to a repository with one.
var moved = map[string]string{
	"gpt2": "openai-community/gpt2", "gpt2-medium": "openai-community/gpt2-medium", "gpt2-large": "openai-community/gpt2-large",
	"gpt2-xl": "openai-community/gpt2-xl", "distilgpt2": "distilbert/distilgpt2",
}

// HubCommand is the command that downloads a model of the hub.
func HubCommand(name string) string {
	name, revision, ok := strings.Cut(name, "@")
	command := "hf download " + cmp.Or(moved[name], name)
	if ok {
		command += " --revision " + revision
	}
	return command
}

// FromHub returns the directory of a model that the Hugging Face tools downloaded: the snapshot in [HubCache] of the
// revision that the name asks for, or of the main branch. The error says how to download it.
func FromHub(name string) (dir string, err error) {
	cache := HubCache()
	repo, revision, _ := strings.Cut(name, "@")
	for _, repo := range slices.Compact([]string{repo, cmp.Or(moved[repo], repo)}) {
		dir := filepath.Join(cache, "models--"+strings.ReplaceAll(repo, "/", "--"))
		if _, err := os.Stat(filepath.Join(dir, "snapshots")); err == nil {
			return snapshot(dir, name, revision)
		}
	}
	return "", problem("", "the Hugging Face cache (%s) has no model %s; '%s' gets it from the hub (in older versions "+
		"'huggingface-cli')", cache, repo, HubCommand(name))
}

// snapshot returns the directory of a revision of a model. Without a name for main, the only one that is there will do.
func snapshot(dir, name, revision string) (string, error) {
	ref := filepath.Join(dir, "refs", cmp.Or(revision, "main"))
	if data, err := files.Read(ref, 4096); err == nil {
		hash := strings.TrimSpace(string(data))
		snapshot := filepath.Join(dir, "snapshots", hash)
		info, err := os.Stat(snapshot)
		if err != nil || !info.IsDir() || filepath.Base(hash) != hash || strings.Trim(hash, ".") == "" {
			return "", problem(ref, "%s names no snapshot that is there: remove the file, then get the model with '%s'",
				quote(hash), HubCommand(name))
		}
		return snapshot, nil
	}
	var all, found []string
	entries, _ := os.ReadDir(filepath.Join(dir, "snapshots"))
	for _, e := range entries {
		if all = append(all, e.Name()); strings.HasPrefix(e.Name(), revision) {
			found = append(found, e.Name())
		}
	}
	if len(found) != 1 {
		return "", problem(dir, "has %d snapshots for %s (there are: %s); name one of them as MODEL@COMMIT, or get it with "+
			"'%s'", len(found), quote(cmp.Or(revision, "main")), strings.Join(all, ", "), HubCommand(name))
	}
	return filepath.Join(dir, "snapshots", found[0]), nil
}
