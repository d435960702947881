package exec

import (
	"cmp"
	"encoding/binary"
	"math"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// state is what passes find in device memory, so that a captured pass never changes: positions, how to sample, the
// tokens sampled last, the ids of a prompt. The host has the same fields, and copies them where the device's are stale.
//
// In bytes, on the device and in host memory:
//
//	0                 gs_sampling
//	samplingBytes     pad (1) int32, and room
//	posOffset         pos (B) int32
//	posOffset + 4 B   tokens (B) int32
//	header            ids (B, T) int32
type state struct {
	batch  int
	device *cuda.Buffer
	host   *cuda.HostBuffer // from which the device's is copied
	room   int              // ids that fit in both

	position int    // tokens in the cache, of each sequence
	step     uint64 // sampling launches so far, as in gs_sampling.step
	sampling gpt2.Sampling
	tokens   []gpt2.Token // sampled last
	stale    bool         // the device's header is not the host's
}

const (
	samplingBytes = int64(unsafe.Sizeof(cuda.Sampling{}))
	posOffset     = samplingBytes + 8
)

func (s *state) header() int64 { return cuda.Align(posOffset + 8*int64(s.batch)) }

// allocate makes room for ids. What was there before is freed.
func (s *state) allocate(dev *cuda.Device, ids int) error {
	if err := s.free(); err != nil {
		return err
	}
	var err error
	if s.device, err = dev.Alloc(s.header() + 4*int64(ids)); err != nil {
		return err
	}
	if s.host, err = dev.AllocHost(s.header() + 4*int64(ids)); err != nil {
		return err
	}
	clear(s.host.Bytes())
	s.room, s.stale = ids, true
	return nil
}

func (s *state) free() error {
	s.room = 0
	return cmp.Or(free(s.device), free(s.host))
}

// reset goes back to a position, and forgets the tokens sampled last.
func (s *state) reset(position int) { s.position, s.stale, s.tokens = position, true, s.tokens[:0] }

// addresses fills in where launches find the state.
func (s *state) addresses(a *addresses) {
	base := s.device.Ptr()
	a.sampling, a.pad, a.pos = base, base+cuda.Ptr(samplingBytes), base+cuda.Ptr(posOffset)
	a.tokens, a.ids = a.pos+cuda.Ptr(4*s.batch), base+cuda.Ptr(s.header())
}

// enter copies the ids of a prompt, (B, T), and the header to the device. padded is how many tokens per sequence run:
// those before the prompt's are idle rows.
func (s *state) enter(stream *cuda.Stream, ids []int32, padded int) error {
	T := len(ids) / s.batch
	to := s.host.Bytes()[s.header():]
	for b := range s.batch {
		row := to[4*b*padded : 4*(b+1)*padded]
		clear(row)
		for t := range T {
			binary.LittleEndian.PutUint32(row[4*(padded-T+t):], uint32(ids[b*T+t]))
		}
	}
	if padded == 1 { // a step takes its token from where the one before put it
		s.tokens = s.tokens[:0]
		for b, id := range ids {
			s.tokens = append(s.tokens, gpt2.Token{ID: id, Seq: b})
		}
	}
	s.fillHeader(padded - T)
	return stream.CopyToDevice(s.device, 0, s.host, 0, s.header()+4*int64(s.batch*padded))
}

// refresh copies the header to the device where it is stale.
func (s *state) refresh(stream *cuda.Stream) error {
	if !s.stale {
		return nil
	}
	s.fillHeader(0)
	return stream.CopyToDevice(s.device, 0, s.host, 0, s.header())
}

// fillHeader writes what the device's header should be, with idle rows at the front of each sequence.
func (s *state) fillHeader(pad int) {
	h := s.host.Bytes()
	how := (*cuda.Sampling)(unsafe.Pointer(&h[0]))
	*how = cuda.Sampling{
		Temperature: s.sampling.Temperature, TopP: s.sampling.TopP, Seed: s.sampling.Seed, Offset: uint64(s.sampling.Offset),
		Step: s.step, TopK: int32(min(s.sampling.TopK, math.MaxInt32)),
	}
	if s.sampling.LogProbs {
		how.LogProbs = 1
	}
	binary.LittleEndian.PutUint32(h[samplingBytes:], uint32(pad))
	for b := range s.batch {
		binary.LittleEndian.PutUint32(h[posOffset+4*int64(b):], uint32(s.position))
	}
	for _, t := range s.tokens {
		binary.LittleEndian.PutUint32(h[posOffset+4*int64(s.batch+t.Seq):], uint32(t.ID))
	}
	s.stale = pad != 0 // a decode step has no idle rows
}
