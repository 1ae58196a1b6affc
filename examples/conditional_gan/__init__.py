"""A spectrally normalised class-conditional GAN (TF-Replicator, 2019, section 6), in small; see README.md."""
