package vendors

import (
	"github.com/acceld/acceld/accel"
)

func kindForm() accel.Form {
	return accel.Form{
		Pattern: `[a-z0-9]+(-[a-z0-9]+)+`,
		Say:     "a kind: <vendor>-<hardware> in lower case, such as example-npu",
	}
}

func domainForm() accel.Form {
	return accel.Form{
		Pattern: `[a-z0-9]([a-z0-9.-]*[a-z0-9])?`, Say: "a domain in lower case, such as example.com",
	}
}

func moduleForm() accel.Form {
	return accel.Form{Pattern: `[A-Za-z0-9_]+`, Say: "a name of letters, digits and underscores, as lsmod has it"}
}

func driverForm() accel.Form {
	return accel.Form{Pattern: `[A-Za-z0-9_-]+`, Say: "the name of a driver: letters, digits, dashes and underscores"}
}

func libraryForm() accel.Form { // of a soname
	return accel.Form{
		Pattern: `[A-Za-z0-9_+.-]+\.so(\.[A-Za-z0-9_.-]+)?`, Say: "the name of a library without its directory, such as libnpu.so.1",
	}
}

func programForm() accel.Form {
	return accel.Form{
		Pattern: `[A-Za-z0-9_][A-Za-z0-9_+.-]*`, Say: "the name of a program without its directory, such as npu-smi",
	}
}

func envForm() accel.Form {
	return accel.Form{Pattern: `[A-Za-z_][A-Za-z0-9_]*=[^\x00]*`, Say: "a variable with its value, such as NPU_MODE=fast"}
}

func makeForm() accel.Form {
	return accel.Form{
		Pattern: `({{.*}}|[A-Za-z_][A-Za-z0-9_]*=)[^\x00\n]*`, Say: "a variable of make with its value, such as CONFIG_NPU=m",
	}
}

func idForm() accel.Form {
	return accel.Form{Pattern: `[0-9a-f]{4}`, Say: "four hexadecimal digits in lower case without 0x, such as 10de"}
}

func classForm() accel.Form {
	return accel.Form{
		Pattern: `[0-9a-f]{0,6}`, Say: "the start of a PCI class: up to six hexadecimal digits without 0x, such as 0302",
	}
}

func modeForm() accel.Form {
	return accel.Form{Pattern: `0[0-7]{3}`, Say: "permissions as chmod takes them, with the zero in front, such as 0666"}
}

func accessForm() accel.Form {
	return accel.Form{Pattern: `r?w?m?`, Say: "one or more of r, w and m in this order, such as rw"}
}

func metricForm() accel.Form {
	return accel.Form{Pattern: `[a-z_]+`, Say: "the name of a metric: lower case letters and underscores"}
}

func capacityForm() accel.Form {
	return accel.Form{
		Pattern: `[A-Za-z_][A-Za-z0-9_]{0,31}`, Say: "a name of up to 32 letters, digits and underscores, such as memory",
	}
}

func systemForm() accel.Form {
	return accel.Form{
		Pattern: `\*|[a-z0-9][a-z0-9._-]*`, Say: `the id of a distribution in lower case, such as debian12, or "*"`,
	}
}

func packageForm() accel.Form {
	return accel.Form{Pattern: `[A-Za-z0-9][A-Za-z0-9+._-]*`, Say: "the name of a package"}
}

func counterForm() accel.Form {
	return accel.Form{
		Pattern: `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`, Say: "a name of lower case letters, digits and dashes, such as memory-slices",
	}
}
