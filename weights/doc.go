// Package weights reads and writes checkpoints: named tensors in safetensors files, the format of Hugging Face model
// directories. It knows tensors, not models: what a name means is its caller's business.
//
// # The format
//
// A safetensors file is the length of its header, the header, which is a JSON object, and the data: every tensor's
// elements, little-endian, row-major. The header maps each tensor's name to its type, its shape and the range of its
// bytes. The ranges must cover the data exactly: no holes, no overlaps, nothing after the last. So a file can be checked
// completely from its header, before any element is read, and that is what opening a checkpoint does. An index says
// which of several files, shards, holds which tensor.
//
// The format is specified at https://github.com/huggingface/safetensors. This package is as strict as the reference
// implementation, and refuses also a name, or a field of a tensor, that is given twice.
//
// [OpenGGUF] reads the other common form of a checkpoint, the GGUF file of llama.cpp.
//
// # Reading
//
// [Open], [OpenFile] and [OpenFS] do not read the tensors. [Tensor.ReadFloat32] and [Tensor.ReadBytes] copy a range of
// elements into the caller's memory and convert it on the way, so a model that is converted while it is loaded is in
// memory once, not twice.
//
// Files are read at offsets, not memory-mapped: the range is copied either way, and a mapping costs page faults, keeps
// pages resident beside the copy (of a file that was just written, 2 MiB around each byte that is touched), and ends a
// process with SIGBUS when the file shrinks.
//
// Element types: F32, F16 and BF16 can be read as floats. Widening to float32 is exact; narrowing rounds to nearest,
// ties to even, as IEEE 754 hardware does. The other types of the format are known by name and size: a file with them
// opens, and they can be read as bytes. NaN and infinities are read like other values; [FirstNonFinite] finds them.
//
// # Errors
//
// No file makes this package panic or allocate more memory than the size of the file justifies. An error about a file
// is an [*Error], which says what is wrong, at which place, and what to do.
package weights
