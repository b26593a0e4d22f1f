package main

import "github.com/acceld/acceld/accel"

// cudaCodes is what the results of the CUDA driver interface mean (CUresult, CUDA Driver API reference, 12.2); what is
// not here is unknown.
func cudaCodes() map[int]meaning {
	const (
		whole = "install the whole user space of the driver, in its version"
		mps   = "check the control daemon of the multi-process service"
	)
	return map[int]meaning{
		1: {"CUDA_ERROR_INVALID_VALUE", accel.FaultUnknown, ""},
		// whoever uses the device has taken all of its memory
		2: {"CUDA_ERROR_OUT_OF_MEMORY", accel.FaultBusy, ""},
		3: {"CUDA_ERROR_NOT_INITIALIZED", accel.FaultUnknown, ""},
		46: {
			"CUDA_ERROR_DEVICE_UNAVAILABLE", accel.FaultBusy,
			"no process has it open: look at its compute mode (nvidia-smi -q -d COMPUTE)",
		},
		100: {
			"CUDA_ERROR_NO_DEVICE", accel.FaultNoDevice,
			"the library sees no GPU: check that the driver is loaded, and its device nodes below /dev",
		},
		101: {"CUDA_ERROR_INVALID_DEVICE", accel.FaultNoDevice, "the library does not have this GPU, only others"},
		102: {"CUDA_ERROR_DEVICE_NOT_LICENSED", accel.FaultNotReady, "the GPU has no licence"},
		200: {"CUDA_ERROR_INVALID_IMAGE", accel.FaultUserSpace, whole},
		209: {"CUDA_ERROR_NO_BINARY_FOR_GPU", accel.FaultUserSpace, whole},
		214: {"CUDA_ERROR_ECC_UNCORRECTABLE", accel.FaultDevice, "a memory error could not be corrected"},
		218: {"CUDA_ERROR_INVALID_PTX", accel.FaultUserSpace, whole},
		220: {"CUDA_ERROR_NVLINK_UNCORRECTABLE", accel.FaultDevice, "an error of NVLink could not be corrected"},
		221: {
			"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", accel.FaultUserSpace,
			"install libnvidia-ptxjitcompiler in the version of the driver",
		},
		222: {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", accel.FaultUserSpace, whole},
		223: {"CUDA_ERROR_JIT_COMPILATION_DISABLED", accel.FaultUserSpace, "translation of PTX is switched off"},
		304: {
			"CUDA_ERROR_OPERATING_SYSTEM", accel.FaultRefused,
			"check the device nodes, their permissions and the control group of acceld",
		},
		700: {"CUDA_ERROR_ILLEGAL_ADDRESS", accel.FaultDevice, ""},
		702: {"CUDA_ERROR_LAUNCH_TIMEOUT", accel.FaultDevice, ""},
		714: {"CUDA_ERROR_HARDWARE_STACK_ERROR", accel.FaultDevice, ""},
		715: {"CUDA_ERROR_ILLEGAL_INSTRUCTION", accel.FaultDevice, ""},
		716: {"CUDA_ERROR_MISALIGNED_ADDRESS", accel.FaultDevice, ""},
		718: {"CUDA_ERROR_INVALID_PC", accel.FaultDevice, ""},
		719: {"CUDA_ERROR_LAUNCH_FAILED", accel.FaultDevice, ""},
		800: {"CUDA_ERROR_NOT_PERMITTED", accel.FaultRefused, ""},
		801: {"CUDA_ERROR_NOT_SUPPORTED", accel.FaultUserSpace, ""},
		802: {
			"CUDA_ERROR_SYSTEM_NOT_READY", accel.FaultNotReady,
			"check that the fabric manager runs, in exactly the version of the driver",
		},
		803: {
			"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", accel.FaultSkew,
			"install libcuda in the version of the loaded module, or reboot into the module of the library's version",
		},
		804: {
			"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", accel.FaultSkew,
			"a library for forward compatibility was found, which this GPU does not support: use the driver's own",
		},
		805: {"CUDA_ERROR_MPS_CONNECTION_FAILED", accel.FaultNotReady, mps},
		806: {"CUDA_ERROR_MPS_RPC_FAILURE", accel.FaultNotReady, mps},
		807: {"CUDA_ERROR_MPS_SERVER_NOT_READY", accel.FaultNotReady, mps},
		808: {"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", accel.FaultBusy, mps},
		809: {"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", accel.FaultBusy, mps},
		999: {
			"CUDA_ERROR_UNKNOWN", accel.FaultUnknown,
			"often module nvidia_uvm or its node /dev/nvidia-uvm is missing; the kernel log (NVRM) may say more",
		},
	}
}
