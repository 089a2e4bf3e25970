from tessera.torch import *
from tessera.torch import QuantEmbeddingBagCollection as EmbeddingBagCollection
from tessera.torch import QuantEmbeddingCollection as EmbeddingCollection
