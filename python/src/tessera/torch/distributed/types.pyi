from tessera.torch import *
