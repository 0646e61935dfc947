"""What noise that you already add guarantees, once and for somebody who takes part weekly."""

import tacit

noise = tacit.DiscreteGaussian(sigma=10)
print(tacit.privacy_of(noise, sensitivity=1, delta=1e-6))
print(tacit.privacy_of(noise, sensitivity=1, delta=1e-6, participations=52).short)
