// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Errors by name and in words, and the last one of each thread. These calls are not counted and do not fail.

#include "calls.hpp"

namespace {

struct named_error {
    cudaError_t error;
    char const* name;
    char const* text; ///< null: the name has to do
};

#define NAMED(error, text)                                                                                   \
    { error, #error, text }

constexpr named_error errors[] = {
    NAMED(cudaSuccess, "no error"),
    NAMED(cudaErrorInvalidValue, "invalid argument"),
    NAMED(cudaErrorMemoryAllocation, "out of memory"),
    NAMED(cudaErrorInitializationError, "initialization error"),
    NAMED(cudaErrorCudartUnloading, nullptr),
    NAMED(cudaErrorProfilerDisabled, nullptr),
    NAMED(cudaErrorProfilerNotInitialized, nullptr),
    NAMED(cudaErrorProfilerAlreadyStarted, nullptr),
    NAMED(cudaErrorProfilerAlreadyStopped, nullptr),
    NAMED(cudaErrorInvalidConfiguration, nullptr),
    NAMED(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    NAMED(cudaErrorInvalidSymbol, nullptr),
    NAMED(cudaErrorInvalidHostPointer, nullptr),
    NAMED(cudaErrorInvalidDevicePointer, nullptr),
    NAMED(cudaErrorInvalidTexture, nullptr),
    NAMED(cudaErrorInvalidTextureBinding, nullptr),
    NAMED(cudaErrorInvalidChannelDescriptor, nullptr),
    NAMED(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    NAMED(cudaErrorAddressOfConstant, nullptr),
    NAMED(cudaErrorTextureFetchFailed, nullptr),
    NAMED(cudaErrorTextureNotBound, nullptr),
    NAMED(cudaErrorSynchronizationError, nullptr),
    NAMED(cudaErrorInvalidFilterSetting, nullptr),
    NAMED(cudaErrorInvalidNormSetting, nullptr),
    NAMED(cudaErrorMixedDeviceExecution, nullptr),
    NAMED(cudaErrorNotYetImplemented, nullptr),
    NAMED(cudaErrorMemoryValueTooLarge, nullptr),
    NAMED(cudaErrorStubLibrary, nullptr),
    NAMED(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    NAMED(cudaErrorCallRequiresNewerDriver, nullptr),
    NAMED(cudaErrorInvalidSurface, nullptr),
    NAMED(cudaErrorDuplicateVariableName, nullptr),
    NAMED(cudaErrorDuplicateTextureName, nullptr),
    NAMED(cudaErrorDuplicateSurfaceName, nullptr),
    NAMED(cudaErrorDevicesUnavailable, nullptr),
    NAMED(cudaErrorIncompatibleDriverContext, nullptr),
    NAMED(cudaErrorMissingConfiguration, nullptr),
    NAMED(cudaErrorPriorLaunchFailure, nullptr),
    NAMED(cudaErrorLaunchMaxDepthExceeded, nullptr),
    NAMED(cudaErrorLaunchFileScopedTex, nullptr),
    NAMED(cudaErrorLaunchFileScopedSurf, nullptr),
    NAMED(cudaErrorSyncDepthExceeded, nullptr),
    NAMED(cudaErrorLaunchPendingCountExceeded, nullptr),
    NAMED(cudaErrorInvalidDeviceFunction, "invalid device function"),
    NAMED(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    NAMED(cudaErrorInvalidDevice, "invalid device ordinal"),
    NAMED(cudaErrorDeviceNotLicensed, nullptr),
    NAMED(cudaErrorSoftwareValidityNotEstablished, nullptr),
    NAMED(cudaErrorStartupFailure, nullptr),
    NAMED(cudaErrorInvalidKernelImage, nullptr),
    NAMED(cudaErrorDeviceUninitialized, nullptr),
    NAMED(cudaErrorMapBufferObjectFailed, nullptr),
    NAMED(cudaErrorUnmapBufferObjectFailed, nullptr),
    NAMED(cudaErrorArrayIsMapped, nullptr),
    NAMED(cudaErrorAlreadyMapped, nullptr),
    NAMED(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    NAMED(cudaErrorAlreadyAcquired, nullptr),
    NAMED(cudaErrorNotMapped, nullptr),
    NAMED(cudaErrorNotMappedAsArray, nullptr),
    NAMED(cudaErrorNotMappedAsPointer, nullptr),
    NAMED(cudaErrorECCUncorrectable, nullptr),
    NAMED(cudaErrorUnsupportedLimit, nullptr),
    NAMED(cudaErrorDeviceAlreadyInUse, nullptr),
    NAMED(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    NAMED(cudaErrorInvalidPtx, nullptr),
    NAMED(cudaErrorInvalidGraphicsContext, nullptr),
    NAMED(cudaErrorNvlinkUncorrectable, nullptr),
    NAMED(cudaErrorJitCompilerNotFound, nullptr),
    NAMED(cudaErrorUnsupportedPtxVersion, nullptr),
    NAMED(cudaErrorJitCompilationDisabled, nullptr),
    NAMED(cudaErrorUnsupportedExecAffinity, nullptr),
    NAMED(cudaErrorUnsupportedDevSideSync, nullptr),
    NAMED(cudaErrorContained, nullptr),
    NAMED(cudaErrorInvalidSource, nullptr),
    NAMED(cudaErrorFileNotFound, nullptr),
    NAMED(cudaErrorSharedObjectSymbolNotFound, nullptr),
    NAMED(cudaErrorSharedObjectInitFailed, nullptr),
    NAMED(cudaErrorOperatingSystem, nullptr),
    NAMED(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    NAMED(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    NAMED(cudaErrorLossyQuery, nullptr),
    NAMED(cudaErrorSymbolNotFound, "named symbol not found"),
    NAMED(cudaErrorNotReady, "device not ready"),
    NAMED(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    NAMED(cudaErrorLaunchOutOfResources, nullptr),
    NAMED(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    NAMED(cudaErrorLaunchIncompatibleTexturing, nullptr),
    NAMED(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    NAMED(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    NAMED(cudaErrorSetOnActiveProcess, nullptr),
    NAMED(cudaErrorContextIsDestroyed, nullptr),
    NAMED(cudaErrorAssert, "device-side assert triggered"),
    NAMED(cudaErrorTooManyPeers, nullptr),
    NAMED(cudaErrorHostMemoryAlreadyRegistered,
          "part or all of the requested memory range is already mapped"),
    NAMED(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    NAMED(cudaErrorHardwareStackError, nullptr),
    NAMED(cudaErrorIllegalInstruction, nullptr),
    NAMED(cudaErrorMisalignedAddress, nullptr),
    NAMED(cudaErrorInvalidAddressSpace, nullptr),
    NAMED(cudaErrorInvalidPc, nullptr),
    NAMED(cudaErrorLaunchFailure, "unspecified launch failure"),
    NAMED(cudaErrorCooperativeLaunchTooLarge, nullptr),
    NAMED(cudaErrorTensorMemoryLeak, nullptr),
    NAMED(cudaErrorNotPermitted, "operation not permitted"),
    NAMED(cudaErrorNotSupported, "operation not supported"),
    NAMED(cudaErrorSystemNotReady, nullptr),
    NAMED(cudaErrorSystemDriverMismatch, nullptr),
    NAMED(cudaErrorCompatNotSupportedOnDevice, nullptr),
    NAMED(cudaErrorMpsConnectionFailed, nullptr),
    NAMED(cudaErrorMpsRpcFailure, nullptr),
    NAMED(cudaErrorMpsServerNotReady, nullptr),
    NAMED(cudaErrorMpsMaxClientsReached, nullptr),
    NAMED(cudaErrorMpsMaxConnectionsReached, nullptr),
    NAMED(cudaErrorMpsClientTerminated, nullptr),
    NAMED(cudaErrorCdpNotSupported, nullptr),
    NAMED(cudaErrorCdpVersionMismatch, nullptr),
    NAMED(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    NAMED(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    NAMED(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    NAMED(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    NAMED(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    NAMED(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    NAMED(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    NAMED(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    NAMED(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
    NAMED(cudaErrorTimeout, nullptr),
    NAMED(cudaErrorGraphExecUpdateFailure, nullptr),
    NAMED(cudaErrorExternalDevice, nullptr),
    NAMED(cudaErrorInvalidClusterSize, nullptr),
    NAMED(cudaErrorFunctionNotLoaded, nullptr),
    NAMED(cudaErrorInvalidResourceType, nullptr),
    NAMED(cudaErrorInvalidResourceConfiguration, nullptr),
    NAMED(cudaErrorUnknown, "unknown error"),
    NAMED(cudaErrorApiFailureBase, nullptr),
};

#undef NAMED

named_error const* find(cudaError_t error) {
    for (named_error const& one : errors)
        if (one.error == error)
            return &one;
    return nullptr;
}

} // namespace

using namespace simulated_device::inside;

extern "C" char const* cudaGetErrorName(cudaError_t error) {
    named_error const* const one = find(error);
    return one != nullptr ? one->name : "unrecognized error code";
}

extern "C" char const* cudaGetErrorString(cudaError_t error) {
    named_error const* const one = find(error);
    if (one == nullptr)
        return "unrecognized error code";
    return one->text != nullptr ? one->text : one->name;
}

extern "C" cudaError_t cudaPeekAtLastError() {
    locked scope;
    cudaError_t const sticky = lost(scope.world, scope.thread.device);
    return sticky != cudaSuccess ? sticky : scope.thread.last_error;
}

extern "C" cudaError_t cudaGetLastError() {
    locked scope;
    cudaError_t const sticky = lost(scope.world, scope.thread.device);
    cudaError_t const last = scope.thread.last_error;
    scope.thread.last_error = cudaSuccess;
    return sticky != cudaSuccess ? sticky : last;
}
