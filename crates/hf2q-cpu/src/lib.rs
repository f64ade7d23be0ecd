//! Stage 7: runs plans on the CPU with SIMD kernels
