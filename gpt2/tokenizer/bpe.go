package tokenizer

import (
	"cmp"
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A pair is two adjacent tokens: the left id in the upper 32 bits, the right one in the lower.
type pair uint64

func pairOf(left, right int32) pair { return pair(uint32(left))<<32 | pair(uint32(right)) }

func (p pair) left() int32  { return int32(p >> 32) }
func (p pair) right() int32 { return int32(uint32(p)) }

// A merge says what becomes of a pair, and how early: the lowest rank goes first.
type merge struct {
	rank int32
	id   int32 // the token that replaces the pair
}

// noRank is the rank of a pair that is not in the list of merges.
const noRank = math.MaxInt32

// A mergeTable maps pairs to merges: a hash table with linear probing, at most half full, which takes a third of the
// time of Go's map. The hash depends on a random number, so that no file can be made whose pairs collide.
type mergeTable struct {
	slots []mergeSlot // a power of two of them
	count int
	shift uint   // 64 - log2(len(slots))
	seed  uint64 // odd
}

type mergeSlot struct {
	pair  pair
	merge // id -1: free
}

// newMergeTable returns a table with room for n pairs.
func newMergeTable(n int) *mergeTable {
	log := bits.Len(uint(n) * 2)
	t := &mergeTable{slots: make([]mergeSlot, 1<<log), shift: uint(64 - log), seed: rand.Uint64() | 1}
	for i := range t.slots {
		t.slots[i].merge = merge{rank: noRank, id: -1}
	}
	return t
}

// find returns the slot that has p, or the free one that it would take.
func (t *mergeTable) find(p pair) *mergeSlot {
	h := uint64(p) * t.seed
	h = (h ^ h>>32) * 0x9E3779B97F4A7C15
	for i := h >> t.shift; ; i++ {
		s := &t.slots[i&uint64(len(t.slots)-1)]
		if s.pair == p || s.id < 0 {
			return s
		}
	}
}

// get returns the merge of p; its rank is noRank if there is none.
func (t *mergeTable) get(p pair) merge { return t.find(p).merge }

// set sets the merge of p. The table has room for it: see newMergeTable.
func (t *mergeTable) set(p pair, m merge) {
	s := t.find(p)
	if s.id < 0 {
		t.count++
	}
	*s = mergeSlot{p, m}
}

// sorted returns the pairs and their merges in the order of ranks.
func (t *mergeTable) sorted() []mergeSlot {
	all := make([]mergeSlot, 0, t.count)
	for _, s := range t.slots {
		if s.id >= 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b mergeSlot) int { return cmp.Compare(a.rank, b.rank) })
	return all
}

// A bpe is the model: the token of each byte, and the merges.
type bpe struct {
	byteID [256]int32
	merges *mergeTable
}

// shortWord is the length, in bytes, up to which appendWord looks for the lowest rank by walking over all pairs:
// for a few bytes that is faster than a queue.
const shortWord = 48

// longestWord bounds what is merged at once, so that positions fit in 31 bits. A longer word is cut.
const longestWord = 1 << 30

// appendWord appends the tokens of w.
func (m *bpe) appendWord(dst []int32, w string) []int32 {
	for len(w) > longestWord {
		dst = m.appendWord(dst, w[:longestWord])
		w = w[longestWord:]
	}
	start := len(dst)
	for i := range len(w) {
		dst = append(dst, m.byteID[w[i]])
	}
	return dst[:start+m.merge(dst[start:])]
}

// merge merges ids in place and returns how many are left.
func (m *bpe) merge(ids []int32) int {
	if len(ids) <= shortWord {
		return m.mergeShort(ids)
	}
	return m.mergeLong(ids)
}

// mergeShort merges ids, at most shortWord of them, in place and returns how many are left.
func (m *bpe) mergeShort(ids []int32) int {
	var found [shortWord]merge // found[i] is the merge of ids[i] and ids[i+1]
	find := func(i int) {
		found[i].rank = noRank
		if i+1 < len(ids) {
			found[i] = m.merges.get(pairOf(ids[i], ids[i+1]))
		}
	}
	for i := range ids {
		find(i)
	}
	for {
		best, at := int32(noRank), 0
		for i := range ids {
			if found[i].rank < best {
				best, at = found[i].rank, i
			}
		}
		if best == noRank {
			return len(ids)
		}
		ids[at] = found[at].id
		copy(ids[at+1:], ids[at+2:])
		copy(found[at+1:len(ids)-1], found[at+2:len(ids)])
		ids = ids[:len(ids)-1]
		find(at)
		if at > 0 {
			find(at - 1)
		}
	}
}

// A node is a token of a word that is being merged, in a doubly linked list. Its index is the position of the
// token's first byte in the word and stays the same as the token grows.
type node struct {
	prev, next int32 // -1: none
	merge            // of this token and the next; rank noRank if there is none, or the token is gone
}

// work is what mergeLong needs; kept between calls.
type work struct {
	nodes []node
	queue rankQueue
}

var workPool = sync.Pool{New: func() any { return new(work) }}

// keepNodes bounds the memory that workPool keeps: a longer word's work is left to the garbage collector.
const keepNodes = 1 << 16

// mergeLong merges ids in place and returns how many are left, in O(n log n).
func (m *bpe) mergeLong(ids []int32) int {
	w := workPool.Get().(*work)
	defer func() {
		if cap(w.nodes) <= keepNodes {
			workPool.Put(w)
		}
	}()
	if cap(w.nodes) < len(ids) {
		w.nodes = make([]node, len(ids))
		w.queue = make(rankQueue, 0, len(ids))
	}
	nodes, queue := w.nodes[:len(ids)], w.queue[:0]

	// find looks up the merge of the token at i and the next.
	find := func(i int32) bool {
		nodes[i].rank = noRank
		if j := nodes[i].next; j >= 0 {
			nodes[i].merge = m.merges.get(pairOf(ids[i], ids[j]))
		}
		return nodes[i].rank != noRank
	}
	last := int32(len(ids) - 1)
	for i := range nodes {
		nodes[i] = node{prev: int32(i) - 1, next: int32(i) + 1}
	}
	nodes[last].next = -1
	for i := range last + 1 {
		if find(i) {
			queue = append(queue, entryOf(nodes[i].rank, i))
		}
	}
	queue.heapify()

	for len(queue) > 0 {
		top := queue.pop()
		i := top.position()
		// An entry is out of date when the pair at i has changed since, which changed its rank: each rank belongs
		// to one pair.
		if nodes[i].rank != top.rank() {
			continue
		}
		ids[i] = nodes[i].id
		gone := nodes[i].next
		nodes[gone].rank = noRank
		next := nodes[gone].next
		nodes[i].next = next
		if next >= 0 {
			nodes[next].prev = i
		}
		if find(i) {
			queue.push(entryOf(nodes[i].rank, i))
		}
		if p := nodes[i].prev; p >= 0 && find(p) {
			queue.push(entryOf(nodes[p].rank, p))
		}
	}
	w.queue = queue

	n := 0
	for i := int32(0); i >= 0; i = nodes[i].next {
		ids[n] = ids[i]
		n++
	}
	return n
}

// A rankEntry is a possible merge: its rank in the upper 32 bits, its position in the word in the lower, so that
// comparing entries orders them by rank and then from left to right.
type rankEntry uint64

func entryOf(rank, position int32) rankEntry {
	return rankEntry(uint32(rank))<<32 | rankEntry(uint32(position))
}

func (e rankEntry) rank() int32     { return int32(e >> 32) }
func (e rankEntry) position() int32 { return int32(uint32(e)) }

// A rankQueue is a binary min-heap. (container/heap would box every entry.)
type rankQueue []rankEntry

func (q rankQueue) heapify() {
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
}

func (q *rankQueue) push(e rankEntry) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent] <= e {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
	*q = h
}

func (q *rankQueue) pop() rankEntry {
	h := *q
	top := h[0]
	h[0] = h[len(h)-1]
	h = h[:len(h)-1]
	if len(h) > 0 {
		h.down(0)
	}
	*q = h
	return top
}

func (q rankQueue) down(i int) {
	e := q[i]
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1] < q[child] {
			child++
		}
		if e <= q[child] {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = e
}

// A wordCache keeps the tokens of words seen lately. A word has one slot, by its hash, and the newest word takes
// it: bounded, and free of locks.
type wordCache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32
}

const (
	cacheSlots = 1 << 14 // a power of two
	cacheWord  = 32      // bytes of the longest word kept
)

func newWordCache() *wordCache { return &wordCache{seed: maphash.MakeSeed()} }

func (c *wordCache) slot(w string) *atomic.Pointer[cachedWord] {
	return &c.slots[maphash.String(c.seed, w)%cacheSlots]
}

// put keeps a copy of w and of its tokens.
func (c *wordCache) put(w string, ids []int32) {
	c.slot(w).Store(&cachedWord{strings.Clone(w), append([]int32(nil), ids...)})
}

// get returns the tokens of w, or nil when they are not there.
func (c *wordCache) get(w string) []int32 {
	if e := c.slot(w).Load(); e != nil && e.word == w {
		return e.ids
	}
	return nil
}
