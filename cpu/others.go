package cpu

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Others says how many cores other programs keep busy, from the system's counters of busy time on the processors that this program may run on.
type Others struct {
	stat    string // the file
	allowed []int
	own     func() time.Duration

	at         time.Time
	busy, mine time.Duration
	known      bool
}

// NewOthers begins to count. On systems without /proc/stat nothing is ever known.
func NewOthers() *Others {
	o := &Others{stat: "/proc/stat", allowed: allowedCPUs(), own: ownTime}
	o.Cores()
	return o
}

// ownTime is the processor time of this process.
func ownTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Cores returns how many cores other programs kept busy since the last call, on average. ok is false if it is not known. Counters have
// steps of 10 ms, so that calls should be 10 ms apart at least, and 20 where this program may not run on all processors.
func (o *Others) Cores() (cores float64, ok bool) {
	text, err := os.ReadFile(o.stat)
	if err != nil {
		return 0, false
	}
	busy, ok := busyTime(text, o.allowed)
	now, mine := time.Now(), o.own()
	if !ok {
		return 0, false
	}
	if elapsed := now.Sub(o.at); o.known && elapsed > 0 {
		cores = max(0, float64((busy-o.busy)-(mine-o.mine))/float64(elapsed))
	}
	ok = o.known
	o.at, o.busy, o.mine, o.known = now, busy, mine, true
	return cores, ok
}

// busyTime adds up the time in which processors did something, by the text of /proc/stat: user, nice, system, irq, softirq and what a hypervisor
// took, in hundredths of a second. Idle time and waiting for disks, which lie between system and irq, do not count. The sum over all processors is taken
// from their common line where all are allowed: it was rounded once, and each processor's line by itself.
func busyTime(text []byte, allowed []int) (sum time.Duration, ok bool) {
	var all time.Duration
	outside := false // there are processors that are not allowed
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 9 || !bytes.HasPrefix(fields[0], []byte("cpu")) {
			continue
		}
		to := &sum
		if number := string(fields[0][len("cpu"):]); number == "" {
			to = &all
		} else if at, err := strconv.Atoi(number); err != nil || !slices.Contains(allowed, at) {
			outside = true
			continue
		}
		for i, field := range fields[1:9] {
			n, err := strconv.ParseInt(string(field), 10, 64)
			if err != nil || n < 0 {
				return 0, false
			}
			if idle := i == 3 || i == 4; !idle {
				*to += time.Duration(n) * 10 * time.Millisecond
			}
		}
		ok = ok || to == &sum
	}
	if !outside && all > 0 {
		return all, ok
	}
	return sum, ok
}
