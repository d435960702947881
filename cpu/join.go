package cpu

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"gpt2scope/gpt2"
)

// joined is a backend whose sessions take decode steps together: the weights are read once for all of them.
type joined struct {
	*Backend
	most int

	mu      sync.Mutex
	turn    *sync.Cond
	members []*runner // that are open
	waiting int       // members that wait for the next step
	steps   int
	err     error   // of the last step
	lead    *runner // whose buffers the steps use: row i is of member i
}

// Join is [gpt2.Joiner].
func (b *Backend) Join(m *gpt2.Model) (gpt2.Backend, int) {
	j := &joined{Backend: b, most: b.pool.isa.equalRows(max(m.Config.Channels, m.Config.Inner))}
	j.turn = sync.NewCond(&j.mu)
	return j, j.most
}

// Prepare makes a runner that steps with the others.
func (j *joined) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	if o.Batch != 1 || len(j.members) == j.most {
		return nil, fmt.Errorf("at most %d sessions of a sequence each decode together", j.most)
	}
	made, err := j.Backend.Prepare(ctx, m, o)
	if err != nil {
		return nil, err
	}
	r := made.(*runner)
	if j.lead == nil {
		lead := *r
		lead.compiled, lead.caches, lead.options.Batch, lead.group = map[gpt2.Pass]*compiled{}, nil, j.most, j
		lead.ids, lead.buffers = mem[int32]{}, [gpt2.NumBuffers]mem[float32]{}
		if lead.position, err = alloc[int32](j.most); err == nil {
			lead.work, err = alloc[float32](attentionWork(r.caches[0], 1))
		}
		if err != nil {
			lead.free()
			r.Close()
			return nil, err
		}
		j.lead = &lead
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r.group, j.members = j, append(j.members, r)
	return r, nil
}

// leave takes a runner out: the others no longer wait for it.
func (j *joined) leave(r *runner) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lead.forget()
	j.members = slices.DeleteFunc(j.members, func(m *runner) bool { return m == r })
	if j.turn.Broadcast(); len(j.members) == 0 {
		j.lead.free()
		j.lead = nil
	}
}

// step waits until all members want their next step, and takes it: the last one for all. r's ids hold the token that it
// evaluates. It returns the logits, which are valid until r wants another step.
func (j *joined) step(ctx context.Context, r *runner) ([]float32, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := j.steps
	j.waiting++
	unregister := context.AfterFunc(ctx, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.turn.Broadcast()
	})
	defer unregister()
	for j.steps == before {
		switch {
		case ctx.Err() != nil:
			j.waiting--
			return nil, context.Cause(ctx)
		case j.waiting < len(j.members):
			j.turn.Wait()
		default:
			j.err = j.take(ctx)
			j.steps, j.waiting = j.steps+1, 0
			j.turn.Broadcast()
		}
	}
	return r.joint, j.err
}

// take runs a step of all members.
func (j *joined) take(ctx context.Context) error {
	lead := j.lead
	c, err := lead.compile(gpt2.Pass{Batch: len(j.members), Tokens: 1, Logits: gpt2.LogitsLast})
	if err != nil {
		return err
	}
	for i, m := range j.members {
		lead.ids.slice()[i], lead.position.slice()[i] = m.ids.slice()[0], int32(m.Position())
	}
	defer lead.hold(ctx, c)()
	c.ranges.Begin(j.members[0].Position())
	defer c.ranges.End()
	whole, err := c.execute(nil)
	if err == nil && !whole {
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	V := lead.model.Config.Vocab
	for i, m := range j.members {
		m.seek(m.Position() + 1)
		m.joint = lead.buffers[gpt2.BufLogits].slice()[i*V : (i+1)*V]
	}
	return nil
}
