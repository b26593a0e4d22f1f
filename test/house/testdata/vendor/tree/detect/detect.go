package detect

// A comment may cite the nvidia driver's documentation.
const (
	arch   = "amd64"
	device = "12345678"
	label  = "nvidia.com/gpu.present"
	id     = "10de"
	card   = "zig"
	port   = "0x4242:0001"
)

func isZagGPU() bool { return false }

func zagged() bool { return false }
