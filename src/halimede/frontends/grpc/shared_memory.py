"""The methods that register, list and unregister clients' shared memory over gRPC."""

from halimede.frontends.grpc import kserve_pb2 as pb
from halimede.frontends.shared_memory.registry import Regions


class SharedMemory:
    """What answers them."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    def system_status(
        self, request: pb.SystemSharedMemoryStatusRequest
    ) -> pb.SystemSharedMemoryStatusResponse:
        """The regions of system memory, or the one that is named."""
        response = pb.SystemSharedMemoryStatusResponse()
        for each in self._regions.system.status(request.name):
            status = response.regions[each.name]
            status.name, status.key = each.name, each.key
            status.offset, status.byte_size = each.offset, each.byte_size
        return response

    def register_system(
        self, request: pb.SystemSharedMemoryRegisterRequest
    ) -> pb.SystemSharedMemoryRegisterResponse:
        """Register a region of system memory."""
        self._regions.check_allowed()
        self._regions.system.register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    def unregister_system(
        self, request: pb.SystemSharedMemoryUnregisterRequest
    ) -> pb.SystemSharedMemoryUnregisterResponse:
        """Unregister a region of system memory, or all without a name."""
        self._regions.check_allowed()
        self._regions.system.unregister(request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    def cuda_status(self, request: pb.CudaSharedMemoryStatusRequest) -> pb.CudaSharedMemoryStatusResponse:
        """The regions of GPUs' memory, or the one that is named."""
        response = pb.CudaSharedMemoryStatusResponse()
        for each in self._regions.cuda.status(request.name):
            status = response.regions[each.name]
            status.name, status.device_id, status.byte_size = each.name, each.device_id, each.byte_size
        return response

    def register_cuda(
        self, request: pb.CudaSharedMemoryRegisterRequest
    ) -> pb.CudaSharedMemoryRegisterResponse:
        """Register a region of a GPU's memory."""
        self._regions.check_allowed()
        self._regions.cuda.register(request.name, request.raw_handle, request.device_id, request.byte_size)
        return pb.CudaSharedMemoryRegisterResponse()

    def unregister_cuda(
        self, request: pb.CudaSharedMemoryUnregisterRequest
    ) -> pb.CudaSharedMemoryUnregisterResponse:
        """Unregister a region of a GPU's memory, or all without a name."""
        self._regions.check_allowed()
        self._regions.cuda.unregister(request.name)
        return pb.CudaSharedMemoryUnregisterResponse()
