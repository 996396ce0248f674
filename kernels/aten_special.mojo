"""Special functions of one number, in float32 or float64.

The tables of i0, i1 and the normal quantile are those of the Cephes Math Library (Copyright (c) 2018, Steven Moshier,
3-clause BSD), which PyTorch uses too; so are the methods of digamma, trigamma and zeta.
"""

from std.ffi import external_call
from std.math import copysign, erf, erfc, exp, floor, fma, log, sin, sqrt, tan, trunc
from std.sys import is_gpu
from std.utils.numerics import inf, isnan, nan
from std.utils.static_tuple import StaticTuple

comptime PI = 3.14159265358979323846

comptime I0_NEAR = StaticTuple[Float64, 30](
    -4.41534164647933937950e-18,
    3.33079451882223809783e-17,
    -2.43127984654795469359e-16,
    1.71539128555513303061e-15,
    -1.16853328779934516808e-14,
    7.67618549860493561688e-14,
    -4.85644678311192946090e-13,
    2.95505266312963983461e-12,
    -1.72682629144155570723e-11,
    9.67580903537323691224e-11,
    -5.18979560163526290666e-10,
    2.65982372468238665035e-9,
    -1.30002500998624804212e-8,
    6.04699502254191894932e-8,
    -2.67079385394061173391e-7,
    1.11738753912010371815e-6,
    -4.41673835845875056359e-6,
    1.64484480707288970893e-5,
    -5.75419501008210370398e-5,
    1.88502885095841655729e-4,
    -5.76375574538582365885e-4,
    1.63947561694133579842e-3,
    -4.32430999505057594430e-3,
    1.05464603945949983183e-2,
    -2.37374148058994688156e-2,
    4.93052842396707084878e-2,
    -9.49010970480476444210e-2,
    1.71620901522208775349e-1,
    -3.04682672343198398683e-1,
    6.76795274409476084995e-1,
)
comptime I0_FAR = StaticTuple[Float64, 25](
    -7.23318048787475395456e-18,
    -4.83050448594418207126e-18,
    4.46562142029675999901e-17,
    3.46122286769746109310e-17,
    -2.82762398051658348494e-16,
    -3.42548561967721913462e-16,
    1.77256013305652638360e-15,
    3.81168066935262242075e-15,
    -9.55484669882830764870e-15,
    -4.15056934728722208663e-14,
    1.54008621752140982691e-14,
    3.85277838274214270114e-13,
    7.18012445138366623367e-13,
    -1.79417853150680611778e-12,
    -1.32158118404477131188e-11,
    -3.14991652796324136454e-11,
    1.18891471078464383424e-11,
    4.94060238822496958910e-10,
    3.39623202570838634515e-9,
    2.26666899049817806459e-8,
    2.04891858946906374183e-7,
    2.89137052083475648297e-6,
    6.88975834691682398426e-5,
    3.36911647825569408990e-3,
    8.04490411014108831608e-1,
)
comptime I1_NEAR = StaticTuple[Float64, 29](
    2.77791411276104639959e-18,
    -2.11142121435816608115e-17,
    1.55363195773620046921e-16,
    -1.10559694773538630805e-15,
    7.60068429473540693410e-15,
    -5.04218550472791168711e-14,
    3.22379336594557470981e-13,
    -1.98397439776494371520e-12,
    1.17361862988909016308e-11,
    -6.66348972350202774223e-11,
    3.62559028155211703701e-10,
    -1.88724975172282928790e-9,
    9.38153738649577178388e-9,
    -4.44505912879632808065e-8,
    2.00329475355213526229e-7,
    -8.56872026469545474066e-7,
    3.47025130813767847674e-6,
    -1.32731636560394358279e-5,
    4.78156510755005422638e-5,
    -1.61760815825896745588e-4,
    5.12285956168575772895e-4,
    -1.51357245063125314899e-3,
    4.15642294431288815669e-3,
    -1.05640848946261981558e-2,
    2.47264490306265168283e-2,
    -5.29459812080949914269e-2,
    1.02643658689847095384e-1,
    -1.76416518357834055153e-1,
    2.52587186443633654823e-1,
)
comptime I1_FAR = StaticTuple[Float64, 25](
    7.51729631084210481353e-18,
    4.41434832307170791151e-18,
    -4.65030536848935832153e-17,
    -3.20952592199342395980e-17,
    2.96262899764595013876e-16,
    3.30820231092092828324e-16,
    -1.88035477551078244854e-15,
    -3.81440307243700780478e-15,
    1.04202769841288027642e-14,
    4.27244001671195135429e-14,
    -2.10154184277266431302e-14,
    -4.08355111109219731823e-13,
    -7.19855177624590851209e-13,
    2.03562854414708950722e-12,
    1.41258074366137813316e-11,
    3.25260358301548823856e-11,
    -1.89749581235054123450e-11,
    -5.58974346219658380687e-10,
    -3.83538038596423702205e-9,
    -2.63146884688951950684e-8,
    -2.51223623787020892529e-7,
    -3.88256480887769039346e-6,
    -1.10588938762623716291e-4,
    -9.76109749136146840777e-3,
    7.78576235018280120474e-1,
)
comptime NORMAL_MIDDLE_TOP = StaticTuple[Float64, 5](
    -5.99633501014107895267e1,
    9.80010754185999661536e1,
    -5.66762857469070293439e1,
    1.39312609387279679503e1,
    -1.23916583867381258016,
)
comptime NORMAL_MIDDLE_BOTTOM = StaticTuple[Float64, 9](
    1.00000000000000000000,
    1.95448858338141759834,
    4.67627912898881538453,
    8.63602421390890590575e1,
    -2.25462687854119370527e2,
    2.00260212380060660359e2,
    -8.20372256168333339912e1,
    1.59056225126211695515e1,
    -1.18331621121330003142,
)
comptime NORMAL_NEAR_TOP = StaticTuple[Float64, 9](
    4.05544892305962419923,
    3.15251094599893866154e1,
    5.71628192246421288162e1,
    4.40805073893200834700e1,
    1.46849561928858024014e1,
    2.18663306850790267539,
    -1.40256079171354495875e-1,
    -3.50424626827848203418e-2,
    -8.57456785154685413611e-4,
)
comptime NORMAL_NEAR_BOTTOM = StaticTuple[Float64, 9](
    1.00000000000000000000,
    1.57799883256466749731e1,
    4.53907635128879210584e1,
    4.13172038254672030440e1,
    1.50425385692907503408e1,
    2.50464946208309415979,
    -1.42182922854787788574e-1,
    -3.80806407691578277194e-2,
    -9.33259480895457427372e-4,
)
comptime NORMAL_FAR_TOP = StaticTuple[Float64, 9](
    3.23774891776946035970,
    6.91522889068984211695,
    3.93881025292474443415,
    1.33303460815807542389,
    2.01485389549179081538e-1,
    1.23716634817820021358e-2,
    3.01581553508235416007e-4,
    2.65806974686737550832e-6,
    6.23974539184983293730e-9,
)
comptime NORMAL_FAR_BOTTOM = StaticTuple[Float64, 9](
    1.00000000000000000000,
    6.02427039364742014255,
    3.67983563856160859403,
    1.37702099489081330271,
    2.16236993594496635890e-1,
    1.34204006088543189037e-2,
    3.28014464682127739104e-4,
    2.89247864745380683936e-6,
    6.79019408009981274425e-9,
)


@always_inline
def erf_of[dtype: DType](x: Scalar[dtype]) -> Scalar[dtype]:
    """Returns erf; C's own on the CPU, which is more precise."""
    comptime assert dtype.is_floating_point()
    comptime if is_gpu():
        return erf(x)
    elif dtype == .float64:
        return external_call["erf", Scalar[dtype]](x)
    else:
        return external_call["erff", Scalar[dtype]](x)


@always_inline
def erfc_of[dtype: DType](x: Scalar[dtype]) -> Scalar[dtype]:
    """Returns erfc, likewise."""
    comptime assert dtype.is_floating_point()
    comptime if is_gpu():
        return erfc(x)
    elif dtype == .float64:
        return external_call["erfc", Scalar[dtype]](x)
    else:
        return external_call["erfcf", Scalar[dtype]](x)


@always_inline
def power[dtype: DType](x: Scalar[dtype], y: Scalar[dtype]) -> Scalar[dtype]:
    """Returns x ** y, likewise; a negative x has a whole y."""
    comptime assert dtype.is_floating_point()
    comptime if is_gpu():
        var size = exp(y * log(abs(x)))
        return -size if x < 0 and y / 2 != floor(y / 2) else size
    elif dtype == .float64:
        return external_call["pow", Scalar[dtype]](x, y)
    else:
        return external_call["powf", Scalar[dtype]](x, y)


@always_inline
def polynomial[
    dtype: DType, n: Int, //, coefficients: StaticTuple[Float64, n]
](x: Scalar[dtype]) -> Scalar[dtype]:
    """Returns a polynomial; the highest power's coefficient is the first."""
    var result = Scalar[dtype](0)
    comptime for i in range(n):
        comptime c = coefficients[i]
        result = result * x + Scalar[dtype](c)
    return result


@always_inline
def chebyshev[
    dtype: DType, n: Int, //, coefficients: StaticTuple[Float64, n]
](x: Scalar[dtype]) -> Scalar[dtype]:
    """Returns a sum of Chebyshev polynomials of x / 2; the highest one's coefficient is the first."""
    var b0 = Scalar[dtype](0)
    var b1 = Scalar[dtype](0)
    var b2 = Scalar[dtype](0)
    comptime for i in range(n):
        comptime c = coefficients[i]
        b2 = b1
        b1 = b0
        b0 = x * b1 - b2 + Scalar[dtype](c)
    return (b0 - b2) / 2


@always_inline
def bessel_i[order: Int, scaled: Bool, dtype: DType](x: Scalar[dtype]) -> Scalar[dtype]:
    """Returns the modified Bessel function of the first kind, of order 0 or 1; scaled, times exp(-|x|)."""
    comptime assert dtype.is_floating_point()
    var size = abs(x)
    var found: Scalar[dtype]
    if size <= 8:
        comptime if order == 0:
            found = chebyshev[I0_NEAR](size / 2 - 2)
        else:
            found = chebyshev[I1_NEAR](size / 2 - 2) * size
    else:
        comptime if order == 0:
            found = chebyshev[I0_FAR](32 / size - 2) / sqrt(size)
        else:
            found = chebyshev[I1_FAR](32 / size - 2) / sqrt(size)
    comptime if not scaled:
        found = exp(size) * found
    comptime if order == 1:
        if x < 0:
            found = -found
    return found


def digamma[dtype: DType](given: Scalar[dtype]) -> Scalar[dtype]:
    """Returns the derivative of the logarithm of the gamma function."""
    comptime assert dtype.is_floating_point()
    var x = given
    if x == 0:
        return copysign(inf[dtype](), -x)
    var result = Scalar[dtype](0)
    if x < 0:
        if x == trunc(x):
            return nan[dtype]()
        var part = Float64(x) - trunc(Float64(x))
        result = -(PI / tan(PI * part)).cast[dtype]()
        x = 1 - x
    while x < 10:
        result -= 1 / x
        x += 1
    if x == 10:
        return result + Scalar[dtype](2.25175258906672110764)
    comptime tail = StaticTuple[Float64, 7](
        8.33333333333333333333e-2,
        -2.10927960927960927961e-2,
        7.57575757575757575758e-3,
        -4.16666666666666666667e-3,
        3.96825396825396825397e-3,
        -8.33333333333333333333e-3,
        8.33333333333333333333e-2,
    )
    var y = Scalar[dtype](0)
    if x < 1e17:
        var z = 1 / (x * x)
        y = z * polynomial[tail](z)
    return result + log(x) - Scalar[dtype](0.5) / x - y


def trigamma[dtype: DType](given: Scalar[dtype]) -> Scalar[dtype]:
    """Returns the derivative of digamma."""
    comptime assert dtype.is_floating_point()
    comptime pi = Scalar[dtype](PI)
    var x = given
    var sign = Scalar[dtype](1)
    var result = Scalar[dtype](0)
    if x < 0.5:
        sign = -1
        var s = sin(pi * x)
        result -= (pi * pi) / (s * s)
        x = 1 - x
    for _ in range(6):
        result += 1 / (x * x)
        x += 1
    var ixx = 1 / (x * x)
    comptime tail = StaticTuple[Float64, 3](1.0 / 42, -1.0 / 30, 1.0 / 6)
    result += (1 + 1 / (2 * x) + ixx * polynomial[tail](ixx)) / x
    return sign * result


def erfinv[dtype: DType](y: Scalar[dtype]) -> Scalar[dtype]:
    """Returns the inverse of erf: a rational guess (G. Pavlis, 1996) and two steps of Newton's method."""
    comptime assert dtype.is_floating_point()
    var size = abs(y)
    if size >= 1 or isnan(y):
        return copysign(inf[dtype](), y) if size == 1 else nan[dtype]()
    comptime a = StaticTuple[Float64, 4](-0.140543331, 0.914624893, -1.645349621, 0.886226899)
    comptime b = StaticTuple[Float64, 5](0.012229801, -0.329097515, 1.442710462, -2.118377725, 1)
    comptime c = StaticTuple[Float64, 4](1.641345311, 3.429567803, -1.624906493, -1.970840454)
    comptime d = StaticTuple[Float64, 3](1.637067800, 3.543889200, 1)
    var x: Scalar[dtype]
    if size <= 0.7:
        var z = y * y
        x = y * polynomial[a](z) / polynomial[b](z)
    else:
        var z = sqrt(-log((1 - size) / 2))
        x = copysign(polynomial[c](z), y) / polynomial[d](z)
    comptime slope = Scalar[dtype](1.12837916709551257390)
    comptime for _ in range(2):
        x -= (erf_of(x) - y) / (slope * exp(-x * x))
    return x


def ndtri[dtype: DType](given: Scalar[dtype]) -> Scalar[dtype]:
    """Returns below which number a normal variable lies with this probability."""
    comptime assert dtype.is_floating_point()
    if given == 0 or given == 1:
        return copysign(inf[dtype](), given - Scalar[dtype](0.5))
    if not (given > 0 and given < 1):
        return nan[dtype]()
    comptime edge = Scalar[dtype](0.13533528323661269189)  # exp(-2)
    var upper = given > 1 - edge
    var y = 1 - given if upper else given
    if y > edge:
        y -= Scalar[dtype](0.5)
        var y2 = y * y
        var x = y + y * (
            y2 * polynomial[NORMAL_MIDDLE_TOP](y2) / polynomial[NORMAL_MIDDLE_BOTTOM](y2)
        )
        return x * Scalar[dtype](2.50662827463100050242)
    var x = sqrt(-2 * log(y))
    var z = 1 / x
    var correction: Scalar[dtype]
    if x < 8:
        correction = z * polynomial[NORMAL_NEAR_TOP](z) / polynomial[NORMAL_NEAR_BOTTOM](z)
    else:
        correction = z * polynomial[NORMAL_FAR_TOP](z) / polynomial[NORMAL_FAR_BOTTOM](z)
    x = x - log(x) / x - correction
    return x if upper else -x


def erfcx(x: Float64) -> Float64:
    """Returns exp(x * x) * erfc(x): from both if that is precise, else by its continued fraction."""
    if isnan(x):
        return x
    if x < -26.7:
        return inf[DType.float64]()
    if x < 10:
        var square = x * x
        var lost = fma(x, x, -square)  # what rounding the square took
        return exp(square) * (1 + lost) * erfc_of(x)
    var below = x
    comptime for i in range(24):
        comptime half = Float64(24 - i) / 2
        below = x + half / below
    return 0.56418958354775628694807945156 / below


def zeta[dtype: DType](x: Scalar[dtype], q: Scalar[dtype]) -> Scalar[dtype]:
    """Returns the sum of (k + q) ** -x over k = 0, 1, ..., by the formula of Euler and Maclaurin."""
    comptime assert dtype.is_floating_point()
    if x == 1:
        return inf[dtype]()
    if x < 1 or isnan(x) or isnan(q):
        return nan[dtype]()
    if q <= 0:
        if q == floor(q):
            return inf[dtype]()
        if x != floor(x):
            return nan[dtype]()
    comptime little = Scalar[dtype](1.11022302462515654042e-16)
    var s = power(q, -x)
    var a = q
    var b = Scalar[dtype](0)
    var i = 0
    while i < 9 or a <= 9:
        i += 1
        a += 1
        b = power(a, -x)
        s += b
        if -little * s < b and b < little * s:
            return s
    var w = a
    s += b * w / (x - 1)
    s -= b / 2
    a = 1
    var k = Scalar[dtype](0)
    comptime terms = StaticTuple[Float64, 12](
        12.0,
        -720.0,
        30240.0,
        -1209600.0,
        47900160.0,
        -1.8924375803183791606e9,
        7.47242496e10,
        -2.950130727918164224e12,
        1.1646782814350067249e14,
        -4.5979787224074726105e15,
        1.8152105401943546773e17,
        -7.1661652561756670113e18,
    )
    comptime for j in range(12):
        comptime term = terms[j]
        a *= x + k
        b /= w
        var t = a * b / Scalar[dtype](term)
        s += t
        if abs(t / s) < little:
            return s
        k += 1
        a *= x + k
        b /= w
        k += 1
    return s
