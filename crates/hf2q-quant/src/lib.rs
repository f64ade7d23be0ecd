//! Stage 2: block formats: layout, quantize, dequantize
