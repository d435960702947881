package tasks

import (
	"strings"
	"testing"
)

// What the tools write: the lines are those of nsys stats 2025.3 and ncu 2025.3, shortened.
const (
	nsysStats = `Processing [run.sqlite] with [cuda_gpu_kern_sum.py]...
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
12.6,230948530,300,769828.4,408206.0,1632,3384721,902359.5,sum_block
16.9,311138834,372,836394.7,266351.0,1408,6333668,1274078.4,add_tuned
3.5,64121472,144,445288.0,447630.0,422302,462814,13315.8,"<unnamed>::read_again_kernel(const uint4 *, unsigned int)"

Processing [run.sqlite] with [cuda_api_sum.py]...
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
60.1,5000000,10,500000.0,400000.0,1,2,3.0,cudaMemcpy

Processing [run.sqlite] with [nvtx_sum.py]...
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range
3.8,190799469,1,190799469.0,190799469.0,190799469,190799469,0.0,PushPop,"gpt2scope:vector.add n=4194304 float32 warm, 1 to 2"
`
	ncuCSV = `==PROF== Connected to process 4674
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","4674","infer","127.0.0.1","add_tuned","1","13","(256, 1, 1)","(8, 1, 1)","0","9.0","Occupancy","Achieved Occupancy","%","80.5"
"1","4674","infer","127.0.0.1","add_tuned","1","13","(256, 1, 1)","(8, 1, 1)","0","9.0","Occupancy","Achieved Occupancy","%","82.5"
"0","4674","infer","127.0.0.1","add_tuned","1","13","(256, 1, 1)","(8, 1, 1)","0","9.0","Memory Workload Analysis","Memory Throughput","byte/s","3,172,619,047.62"
"0","4674","infer","127.0.0.1","add_tuned","1","13","(256, 1, 1)","(8, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Memory Throughput","%","91.2"
"2","4674","infer","127.0.0.1","sum_final","1","13","(1024, 1, 1)","(1, 1, 1)","0","9.0","Memory Workload Analysis","L2 Hit Rate","%","66"
`
)

func TestExplain(t *testing.T) {
	var e Explanation
	for _, text := range []string{nsysStats, ncuCSV} {
		if err := e.Add(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	samples := line(100, 0.002, 0) // vector.add, tuned
	e.Beside(samples)
	if len(e.Kernels) != 4 || len(e.Calls) != 1 || len(e.Ranges) != 1 {
		t.Fatalf("%+v", e)
	}
	k := e.Kernels[0]
	if k.Name != "add_tuned" || k.Task != "vector.add" || k.Variant != Tuned || k.Launches != 372 || *k.MedianUs != 266.351 || k.SampleUs == nil || *k.Occupancy != 81.5 || *k.Memory != 91.2 || k.TimedByNcu != 2 || k.L2HitRate != nil {
		t.Errorf("%+v", k)
	}
	if last := e.Kernels[3]; last.Name != "sum_final" || last.Task != "reduce.sum" || last.MedianUs != nil || *last.L2HitRate != 66 {
		t.Errorf("%+v", last)
	}
	if other := e.Kernels[2]; other.Name != "<unnamed>::read_again_kernel" || other.Task != "" {
		t.Errorf("%+v", other)
	}
	if c := e.Calls[0]; c.Name != "cudaMemcpy" || c.Count != 10 || c.TotalUs != 5000 || c.MedianUs != 400 {
		t.Errorf("%+v", c)
	}
	if r := e.Ranges[0]; r.Name != "gpt2scope:vector.add n=4194304 float32 warm, 1 to 2" || r.TotalUs != 190799.469 {
		t.Errorf("%+v", r)
	}
	for _, bad := range []string{"", "a,b,c\n1,2,3\n", "size,cpu_time_ms\n"} {
		if err := new(Explanation).Add(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), "neither") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
