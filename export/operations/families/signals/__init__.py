"""Operations of images, sequences and spectra."""
