// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The functions of the CUDA runtime that are not modelled. A program that names one links all the same; a call of it answers
// cudaErrorNotSupported and is reported by the function's name. Nobody looks at the arguments, so this file does without CUDA's
// declarations and defines each as a function without parameters, which C's callers do not notice.

namespace simulated_device::inside {
int not_modelled(char const* function); // calls.cpp
}

#define NOT_MODELLED(Name, Symbol)                                                                                           \
    extern "C" int Symbol() { return simulated_device::inside::not_modelled(#Name); }
#define ONE(Name) NOT_MODELLED(Name, Name)
#define WITH_PTSZ(Name) NOT_MODELLED(Name, Name) NOT_MODELLED(Name, Name##_ptsz)
#define WITH_PTDS(Name) NOT_MODELLED(Name, Name) NOT_MODELLED(Name, Name##_ptds)

// clang-format off
ONE(cudaArrayGetInfo) ONE(cudaArrayGetMemoryRequirements) ONE(cudaArrayGetPlane) ONE(cudaArrayGetSparseProperties)
ONE(cudaChooseDevice) ONE(cudaCreateSurfaceObject) ONE(cudaCreateTextureObject) ONE(cudaCtxResetPersistingL2Cache)
ONE(cudaDestroyExternalMemory) ONE(cudaDestroyExternalSemaphore) ONE(cudaDestroySurfaceObject)
ONE(cudaDestroyTextureObject) ONE(cudaDeviceFlushGPUDirectRDMAWrites) ONE(cudaDeviceGetByPCIBusId)
ONE(cudaDeviceGetCacheConfig) ONE(cudaDeviceGetHostAtomicCapabilities) ONE(cudaDeviceGetNvSciSyncAttributes)
ONE(cudaDeviceGetP2PAtomicCapabilities) ONE(cudaDeviceGetP2PAttribute) ONE(cudaDeviceGetSharedMemConfig)
ONE(cudaDeviceGetTexture1DLinearMaxWidth) ONE(cudaDeviceRegisterAsyncNotification) ONE(cudaDeviceSetCacheConfig)
ONE(cudaDeviceSetSharedMemConfig) ONE(cudaDeviceUnregisterAsyncNotification) ONE(cudaExternalMemoryGetMappedBuffer)
ONE(cudaExternalMemoryGetMappedMipmappedArray) ONE(cudaFreeArray) ONE(cudaFreeMipmappedArray) ONE(cudaFuncGetName)
ONE(cudaFuncGetParamInfo) ONE(cudaFuncSetCacheConfig) ONE(cudaFuncSetSharedMemConfig) ONE(cudaGetChannelDesc)
ONE(cudaGetExportTable) ONE(cudaGetFuncBySymbol) ONE(cudaGetKernel) ONE(cudaGetMipmappedArrayLevel)
ONE(cudaGetSurfaceObjectResourceDesc) ONE(cudaGetSymbolAddress) ONE(cudaGetSymbolSize)
ONE(cudaGetTextureObjectResourceDesc) ONE(cudaGetTextureObjectResourceViewDesc) ONE(cudaGetTextureObjectTextureDesc)
ONE(cudaGraphAddChildGraphNode) ONE(cudaGraphAddDependencies) ONE(cudaGraphAddEmptyNode) ONE(cudaGraphAddEventRecordNode)
ONE(cudaGraphAddEventWaitNode) ONE(cudaGraphAddExternalSemaphoresSignalNode) ONE(cudaGraphAddExternalSemaphoresWaitNode)
ONE(cudaGraphAddHostNode) ONE(cudaGraphAddKernelNode) ONE(cudaGraphAddMemAllocNode) ONE(cudaGraphAddMemFreeNode)
ONE(cudaGraphAddMemcpyNode) ONE(cudaGraphAddMemcpyNode1D) ONE(cudaGraphAddMemcpyNodeFromSymbol)
ONE(cudaGraphAddMemcpyNodeToSymbol) ONE(cudaGraphAddMemsetNode) ONE(cudaGraphAddNode) ONE(cudaGraphChildGraphNodeGetGraph)
ONE(cudaGraphConditionalHandleCreate) ONE(cudaGraphDebugDotPrint) ONE(cudaGraphDestroyNode)
ONE(cudaGraphEventRecordNodeGetEvent) ONE(cudaGraphEventRecordNodeSetEvent) ONE(cudaGraphEventWaitNodeGetEvent)
ONE(cudaGraphEventWaitNodeSetEvent) ONE(cudaGraphExecChildGraphNodeSetParams) ONE(cudaGraphExecEventRecordNodeSetEvent)
ONE(cudaGraphExecEventWaitNodeSetEvent) ONE(cudaGraphExecExternalSemaphoresSignalNodeSetParams)
ONE(cudaGraphExecExternalSemaphoresWaitNodeSetParams) ONE(cudaGraphExecHostNodeSetParams)
ONE(cudaGraphExecKernelNodeSetParams) ONE(cudaGraphExecMemcpyNodeSetParams) ONE(cudaGraphExecMemcpyNodeSetParams1D)
ONE(cudaGraphExecMemcpyNodeSetParamsFromSymbol) ONE(cudaGraphExecMemcpyNodeSetParamsToSymbol)
ONE(cudaGraphExecMemsetNodeSetParams) ONE(cudaGraphExecNodeSetParams) ONE(cudaGraphExternalSemaphoresSignalNodeGetParams)
ONE(cudaGraphExternalSemaphoresSignalNodeSetParams) ONE(cudaGraphExternalSemaphoresWaitNodeGetParams)
ONE(cudaGraphExternalSemaphoresWaitNodeSetParams) ONE(cudaGraphGetEdges) ONE(cudaGraphGetRootNodes)
ONE(cudaGraphHostNodeGetParams) ONE(cudaGraphHostNodeSetParams) ONE(cudaGraphKernelNodeCopyAttributes)
ONE(cudaGraphKernelNodeGetAttribute) ONE(cudaGraphKernelNodeGetParams) ONE(cudaGraphKernelNodeSetAttribute)
ONE(cudaGraphKernelNodeSetParams) ONE(cudaGraphMemAllocNodeGetParams) ONE(cudaGraphMemFreeNodeGetParams)
ONE(cudaGraphMemcpyNodeGetParams) ONE(cudaGraphMemcpyNodeSetParams) ONE(cudaGraphMemcpyNodeSetParams1D)
ONE(cudaGraphMemcpyNodeSetParamsFromSymbol) ONE(cudaGraphMemcpyNodeSetParamsToSymbol) ONE(cudaGraphMemsetNodeGetParams)
ONE(cudaGraphMemsetNodeSetParams) ONE(cudaGraphNodeFindInClone)
ONE(cudaGraphNodeGetDependentNodes) ONE(cudaGraphNodeGetEnabled) ONE(cudaGraphNodeSetEnabled) ONE(cudaGraphNodeSetParams)
ONE(cudaGraphRemoveDependencies) ONE(cudaGraphicsMapResources) ONE(cudaGraphicsResourceGetMappedMipmappedArray)
ONE(cudaGraphicsResourceGetMappedPointer) ONE(cudaGraphicsResourceSetMapFlags) ONE(cudaGraphicsSubResourceGetMappedArray)
ONE(cudaGraphicsUnmapResources) ONE(cudaGraphicsUnregisterResource) ONE(cudaImportExternalMemory)
ONE(cudaImportExternalSemaphore) ONE(cudaIpcCloseMemHandle) ONE(cudaIpcGetEventHandle) ONE(cudaIpcGetMemHandle)
ONE(cudaIpcOpenEventHandle) ONE(cudaIpcOpenMemHandle) ONE(cudaKernelSetAttributeForDevice) ONE(cudaLibraryEnumerateKernels)
ONE(cudaLibraryGetGlobal) ONE(cudaLibraryGetKernel) ONE(cudaLibraryGetKernelCount) ONE(cudaLibraryGetManaged)
ONE(cudaLibraryGetUnifiedFunction) ONE(cudaLibraryLoadData) ONE(cudaLibraryLoadFromFile) ONE(cudaLibraryUnload)
ONE(cudaLogsCurrent) ONE(cudaLogsDumpToFile) ONE(cudaLogsDumpToMemory) ONE(cudaLogsRegisterCallback)
ONE(cudaLogsUnregisterCallback) ONE(cudaMalloc3D) ONE(cudaMalloc3DArray) ONE(cudaMallocArray) ONE(cudaMallocMipmappedArray)
ONE(cudaMemRangeGetAttributes) ONE(cudaMipmappedArrayGetMemoryRequirements) ONE(cudaMipmappedArrayGetSparseProperties)
ONE(cudaOccupancyAvailableDynamicSMemPerBlock) ONE(cudaOccupancyMaxActiveClusters)
ONE(cudaOccupancyMaxPotentialClusterSize) ONE(cudaSetValidDevices)
WITH_PTSZ(cudaMemPrefetchBatchAsync) WITH_PTSZ(cudaMemcpy2DFromArrayAsync) WITH_PTSZ(cudaMemcpy2DToArrayAsync)
WITH_PTSZ(cudaMemcpy3DAsync) WITH_PTSZ(cudaMemcpy3DBatchAsync) WITH_PTSZ(cudaMemcpy3DPeerAsync)
WITH_PTSZ(cudaMemcpyFromArrayAsync) WITH_PTSZ(cudaMemcpyFromSymbolAsync) WITH_PTSZ(cudaMemcpyToArrayAsync)
WITH_PTSZ(cudaMemcpyToSymbolAsync) WITH_PTSZ(cudaMemset3DAsync) WITH_PTSZ(cudaSignalExternalSemaphoresAsync)
WITH_PTSZ(cudaStreamBeginCaptureToGraph) WITH_PTSZ(cudaStreamCopyAttributes) WITH_PTSZ(cudaStreamGetAttribute)
WITH_PTSZ(cudaStreamSetAttribute) WITH_PTSZ(cudaWaitExternalSemaphoresAsync)
WITH_PTDS(cudaMemcpy2DArrayToArray) WITH_PTDS(cudaMemcpy2DFromArray) WITH_PTDS(cudaMemcpy2DToArray) WITH_PTDS(cudaMemcpy3D)
WITH_PTDS(cudaMemcpy3DPeer) WITH_PTDS(cudaMemcpyArrayToArray) WITH_PTDS(cudaMemcpyFromArray)
WITH_PTDS(cudaMemcpyFromSymbol) WITH_PTDS(cudaMemcpyToArray) WITH_PTDS(cudaMemcpyToSymbol) WITH_PTDS(cudaMemset3D)
