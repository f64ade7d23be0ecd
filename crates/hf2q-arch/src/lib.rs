//! Stage 3: architectures as data: hyperparameters and tensor maps
