//! One operation a file.

pub(crate) mod angles;
pub(crate) mod attention;
pub(crate) mod elementwise;
pub(crate) mod embed;
pub(crate) mod expert_rows;
pub(crate) mod expert_sum;
pub(crate) mod float_mat_mul;
pub(crate) mod glu;
pub(crate) mod input;
pub(crate) mod kv_store;
pub(crate) mod norm;
pub(crate) mod picks;
pub mod quant_mat_mul;
pub(crate) mod quantized;
pub(crate) mod rope;
pub(crate) mod route;
pub(crate) mod select_rows;
