package layers

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/journal"
)

// ResultFile is the file in an experiment's directory that holds its [Result].
const ResultFile = "layers.json"

// Part is a part of an experiment, as its directory holds it.
type Part struct {
	Dir   string
	whole map[string]json.RawMessage // the configuration of the whole experiment
	tasks []journal.Entry[Row]
	known Computed
	notes []string // of how it was measured; others follow from the values
}

// maxResult bounds a file that is read, in bytes, since it may have been damaged or replaced.
const maxResult = 256 << 20

// ReadPart reads the directory that "infer layers --shard" wrote.
func ReadPart(dir string) (*Part, error) {
	configuration, tasks, err := journal.Read(dir, StateFile, stateFormat, wholeRow)
	if err != nil {
		return nil, err
	}
	p := &Part{Dir: dir, whole: configuration, tasks: tasks}
	var text string
	if json.Unmarshal(configuration["shard"], &text) != nil || text == "" {
		return nil, fmt.Errorf("%s is not a part of an experiment; 'infer layers --shard 1/2' measures one", dir)
	}
	shard, err := journal.ParseShard(text)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: shard: %w", filepath.Join(dir, StateFile), err)
	}
	delete(p.whole, "shard")
	r, err := readResult(filepath.Join(dir, ResultFile))
	if err != nil {
		return nil, err
	}
	if p.known, err = computedOf(configuration, r); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", filepath.Join(dir, ResultFile), err)
	}
	p.known.Shard = shard
	values := p.known.Summarize(rowsOf(tasks)).Notes
	for _, note := range r.Notes {
		switch {
		case strings.HasPrefix(note, notAll):
			p.notes = append(p.notes, dir+": "+note)
		case !slices.Contains(values, note):
			p.notes = append(p.notes, note)
		}
	}
	return p, nil
}

// rowsOf returns the rows of tasks.
func rowsOf(tasks []journal.Entry[Row]) (rows []Row) {
	for _, t := range tasks {
		rows = append(rows, t.Rows...)
	}
	return rows
}

// readResult reads layers.json.
func readResult(path string) (*Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, humanize.Cause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxResult))
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, humanize.Cause(err))
	}
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if r.Version != resultVersion {
		return nil, fmt.Errorf("%s has format version %d, and this program reads version %d", path, r.Version, resultVersion)
	}
	return &r, nil
}

// computedOf finds in a result what was computed.
func computedOf(configuration map[string]json.RawMessage, r *Result) (c Computed, err error) {
	text, _ := json.Marshal(configuration) // raw JSON: it cannot fail
	var f struct {
		Geometry struct {
			Layers int `json:"n_layer"`
		} `json:"geometry"`
		PromptLen  int      `json:"prompt_len"`
		Batch      int      `json:"batch"`
		Window     int      `json:"window"`
		Seed       uint64   `json:"seed"`
		TextTokens int      `json:"text_tokens"`
		Variants   []string `json:"variants"`
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return c, fmt.Errorf("configuration: %w", err)
	}
	for _, v := range slices.Concat(r.Variants, r.Predicted) {
		if v.Label == "" || len(v.Order) < 1 || len(v.Order) > MaxDepth || v.Layers != len(v.Order) {
			return c, fmt.Errorf("variant %q has a list of %d layers", v.Label, len(v.Order))
		}
	}
	var labels []string
	for _, v := range r.Variants {
		labels = append(labels, v.Label)
	}
	if !slices.Equal(labels, f.Variants) {
		return c, fmt.Errorf("its variants are not those of %s", StateFile)
	}
	return Computed{Layers: f.Geometry.Layers, Window: f.Window, Seed: f.Seed, TextTokens: f.TextTokens,
		PassTokens: map[string]int{TaskPrefill: f.Batch * f.PromptLen, TaskDecode: f.Batch}, Variants: r.Variants, Predicted: r.Predicted}, nil
}

// Merged is an experiment whose parts were measured apart.
type Merged struct {
	Configuration map[string]any // that of the whole experiment

	known Computed
	tasks []journal.Entry[Row]
	notes []string
}

// Merge puts parts of one experiment together. Tasks are in the order of their times; one that
// several parts hold with the same values counts once.
func Merge(parts []*Part) (*Merged, error) {
	first := parts[0]
	m := &Merged{known: first.known, Configuration: map[string]any{}}
	m.known.Shard = journal.Shard{}
	for name, value := range first.whole {
		m.Configuration[name] = value
	}
	from, missing := map[string]*Part{}, make([]bool, first.known.Shard.Count)
	done := map[string]journal.Entry[Row]{}
	for i := range missing {
		missing[i] = true
	}
	for _, p := range parts {
		if difference := journal.Difference(p.whole, first.whole); difference != "" {
			return nil, fmt.Errorf("%s is of another experiment than %s: %s", p.Dir, first.Dir, difference)
		}
		if p.known.Shard.Count != first.known.Shard.Count {
			return nil, fmt.Errorf("%s is one of %d parts, but %s is one of %d", p.Dir, p.known.Shard.Count, first.Dir, first.known.Shard.Count)
		}
		missing[p.known.Shard.Index-1] = false
		for _, t := range p.tasks {
			switch other, ok := done[t.Task]; {
			case !ok:
				done[t.Task], from[t.Task] = t, p
				m.tasks = append(m.tasks, t)
			case !reflect.DeepEqual(other, t):
				return nil, fmt.Errorf("%s and %s both hold '%s', with other values; give each part once", from[t.Task].Dir, p.Dir, t.Task)
			}
		}
		m.known.join(p.known)
		for _, note := range p.notes {
			if !slices.Contains(m.notes, note) {
				m.notes = append(m.notes, note)
			}
		}
	}
	var absent []string
	for i, is := range missing {
		if is {
			absent = append(absent, fmt.Sprintf("%d/%d", i+1, len(missing)))
		}
	}
	if len(absent) > 0 {
		m.notes = append(m.notes, fmt.Sprintf("%s: there is no part %s; 'infer layers --shard' measures it.", notAll, strings.Join(absent, ", ")))
	}
	slices.SortStableFunc(m.tasks, func(a, b journal.Entry[Row]) int { return ended(a).Compare(ended(b)) })
	return m, nil
}

// ended is when a task's measurement ended, as its rows say; one without rows comes first.
func ended(t journal.Entry[Row]) time.Time {
	if len(t.Rows) == 0 {
		return time.Time{}
	}
	return t.Rows[0].Time
}

// join adds what another part computed: depths that only it predicts, and lower floors, by the
// higher ceilings of its device.
func (c *Computed) join(other Computed) {
	for i, v := range c.Variants {
		c.Variants[i].Metrics = lowerFloors(v.Metrics, other.Variants[i].Metrics)
	}
	for _, d := range other.Predicted {
		at := slices.IndexFunc(c.Predicted, func(p Variant) bool { return p.Layers == d.Layers })
		if at < 0 {
			c.Predicted = append(c.Predicted, d)
			continue
		}
		c.Predicted[at].Metrics = lowerFloors(c.Predicted[at].Metrics, d.Metrics)
	}
	slices.SortFunc(c.Predicted, func(a, b Variant) int { return a.Layers - b.Layers })
}

// lowerFloors returns metrics with the floors of other metrics where those are lower, or the only
// ones.
func lowerFloors(metrics, other map[string]Metric) map[string]Metric {
	out := maps.Clone(metrics)
	for _, name := range []string{TaskPrefill + " floor", TaskDecode + " floor"} {
		mine, ok := metrics[name]
		if theirs, has := other[name]; has && (!ok || theirs.Median < mine.Median) {
			out[name] = theirs
		}
	}
	return out
}

// Result summarises all parts.
func (m *Merged) Result() *Result {
	r := m.known.Summarize(m.Rows())
	r.Configuration = m.Configuration
	r.Notes = append(r.Notes, m.notes...)
	return r
}

// Rows returns the measurements of all parts in the order of their times.
func (m *Merged) Rows() []Row { return rowsOf(m.tasks) }

// Save writes a state file into a directory, so that the experiment can go on there. One that is
// there must be of the same experiment, and hold nothing else.
func (m *Merged) Save(dir string) error {
	j, err := OpenJournal(dir, m.Configuration)
	if err != nil {
		return err
	}
	defer j.Close()
	left := map[string]bool{}
	for _, t := range j.Tasks() {
		left[t.Task] = true
	}
	var missing []journal.Entry[Row]
	for _, t := range m.tasks {
		if !left[t.Task] {
			missing = append(missing, t)
		}
		delete(left, t.Task)
	}
	for task := range left {
		return fmt.Errorf("%s holds '%s', which no part holds; give another directory", dir, task)
	}
	return j.AddAll(missing)
}
